"""Tracing: tracers, NumPy dispatch, views and writes, nestings of arguments."""
