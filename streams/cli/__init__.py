"""The verbs of `headrace`."""
