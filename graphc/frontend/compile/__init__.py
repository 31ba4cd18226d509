"""`gc.compile`: signatures, variants, the engine."""
