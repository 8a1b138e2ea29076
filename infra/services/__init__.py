"""The fleet's servers on one machine, without Docker: fetched once, started on 127.0.0.1, ended cleanly.

`catalog` says what there is (versions, ports, credentials), `fetch` brings it, `commands` how each is configured and
started, `ready` when each truly answers, `processes` what the system knows of them, `launcher` the four verbs.
"""
