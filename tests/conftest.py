"""What holds for every test: how Hypothesis searches."""

from __future__ import annotations

from hypothesis import settings

# No deadline: a shared machine may stop an example for longer than any that is worth setting, and time is no result of
# ours. The blob replays a failing example on another machine.
settings.register_profile("headrace", deadline=None, print_blob=True)
settings.load_profile("headrace")
