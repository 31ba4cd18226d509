"""Reads and writes at positions: indexing, gather, scatter, updates."""
