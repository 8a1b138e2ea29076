"""Runner C: the crawl in virtual time, over a generated web, with everything going wrong that can.

What is real: the core (`streams.core.owner` and all below it), the fetch stage's reading of answers and of robots.txt,
the order of each runner's commit. What is thought of: time, the web, the disk, the topics, the processes.

A run is a function of its seed. `run.simulate` builds a web (`web`), a policy, and a crawler of one of two kinds: the
embedded engine (`embedded_owner`), which dies as one, or the fleet (`fleet_owner` over `fleet`, `region`, `disk` and
`fetch_group`), whose processes die one by one. `loop` is true time, which only hosts and judges see: every process has
a clock of its own that may differ. `faults` says what goes wrong.

Three judges watch and never steer: `politeness_judge` sees what hosts see, `books_judge` the rows and the messages,
`flow_judge` that the crawl goes on. What they see broken is a `Violation`, and the seed that shows it shows it again.
"""
