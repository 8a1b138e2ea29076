"""The rules that the stages apply, each a function of its arguments alone."""
