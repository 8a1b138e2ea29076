"""I/O only: each port of `connectors.ports` with its adapters. No rule of the crawl lives here."""
