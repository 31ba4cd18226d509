"""Graphs as StableHLO modules, in MLIR's generic text: what XLA, IREE and others compile."""
