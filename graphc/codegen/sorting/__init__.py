"""Kernels over rows of keys that are written in LLVM's vectors, for the machines that have them."""
