"""What must be there before a fleet's first worker, made once: topics, keyspace and tables, bucket, index, connector.

Theory of operation. Each part looks at what there is and returns `Step`s (`steps`): what stands, what is to be made or
changed and how, and what cannot be mended without losing something, with the remedy. Nothing is changed while a part
looks; a part with one refusal changes nothing at all. So a second run finds all of it standing, a dry run is the same
look without the deeds, and a run that was cut off is simply repeated.

| part      | made of                                          | by                             |
|-----------|--------------------------------------------------|--------------------------------|
| topics    | `schemas.topics`                                 | `topics`, over `kafka_admin`   |
| keyspace  | `schemas/crawl.cql`                              | `keyspace`, over `cassandra_admin` |
| bucket    | the settings                                     | `bucket`                       |
| index     | `schemas/pages-index.json`                       | `index`, over `rest`           |
| connector | `connectors/sink/pages-sink.json`                | `connector`, over `rest`       |

`everything` opens the real services part by part; tests hand in fakes of the same ports.
"""
