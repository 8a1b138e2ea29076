"""Runner B: the owners of a fleet's partitions, as a Faust app over Kafka, Cassandra and RocksDB.

What happens to a group of messages, as numbered in `streams.fleet.commit`: *decide*, by the same core as on one
machine; *transaction*: host states, redo of the rows, outputs and input positions, all or nothing, by a producer that
fences whoever owned the partition before; *rows*, to the table that all owners share; *apply*, to the local store;
*offsets*, as a convenience.

| room        | what it has to do with it                                                               |
|-------------|-----------------------------------------------------------------------------------------|
| `changelog` | what a partition's owners leave one another: states, positions, redo                    |
| `intake`    | a message's bytes become events, or go on to where they belong, or to the dead letters  |
| `outputs`   | what a turn found becomes records of topics                                             |
| `reads`     | what the core reads: the local store, and the shared rows where the store is not whole  |
| `local`     | the local store and where it stands                                                     |
| `commit`    | the numbered steps                                                                      |
| `owner`     | one partition: takeover, groups, poison, waking                                         |
| `keeper`    | the partitions of one worker: which it owns, which it follows, which it lets go         |
| `table`     | what Faust is told: a table whose changelog assigns partitions and standbys             |
| `faust_mends` | what stock Faust does wrong and we rest on, each with a test                          |
"""
