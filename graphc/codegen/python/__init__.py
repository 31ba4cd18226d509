"""Loop nests as readable Python that Numba accepts."""
