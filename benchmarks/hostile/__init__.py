"""Mutated dumps of every late stage: is one ever run to harm?  `python -m benchmarks.hostile`."""
