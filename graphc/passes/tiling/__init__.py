"""The shapes of kernels, and chains of them that run block by block."""
