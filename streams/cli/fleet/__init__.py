"""The verbs that speak to a fleet: by its topics, and by asking the owner of a host.

| verb | by |
|---|---|
| `seeds`, `sitemap` | records to discovered-urls (`sending`) |
| `topics` | the topics as they lie (`topics`, `readable`) |
| `host --fleet` | the ledger of words on host-policies (`host`) |
| `explain --fleet` | the page of the host's owner (`explain`) |
| `dead-letters --fleet` | the topic dead-letters (`dead_letters`) |

`clients` opens what they share; nothing here knows a client library.
"""
