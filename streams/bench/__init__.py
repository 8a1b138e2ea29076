"""What Headrace's frontier and its seen test cost on this machine: the measurements behind `headrace bench`.

Everything goes through the real durable state, with the engine's groups and its synced commits. What the measurement
makes itself (URLs, answers, its own books) is not charged: its CPU time is taken out (`streams.bench.meter`).
"""
