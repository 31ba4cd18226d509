"""Object code through Numba, for library kernels and users' own functions."""
