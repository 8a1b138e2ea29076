"""The pure core: every rule of the crawl, with no clock, no dice, no I/O and no framework."""
