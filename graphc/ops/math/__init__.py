"""Element by element: arithmetic, comparison, casts, transcendental and activation functions."""
