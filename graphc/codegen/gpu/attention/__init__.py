"""Kernels of attention: `plan` says who reads what, `source` writes the frame, others multiply."""
