"""Saved graphs, their weights and variables, the dump folder."""
