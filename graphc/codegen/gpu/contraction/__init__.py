"""Kernels of contractions: `plan` cuts tiles, `block` writes the frame, others fill it."""
