"""A fleet in production: how much of everything (`sizing`, `figures.toml`), what runs it, and what to watch.

`README.md` beside this file is for people. Its tables are `headrace size`'s own words, which a test compares.
"""
