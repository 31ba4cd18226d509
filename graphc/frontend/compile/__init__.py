"""`gc.compile`: signatures, variants, how one is built, and calls of it."""
