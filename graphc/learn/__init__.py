"""Learning: layers, optimisers, data and training, as plain functions over pytrees."""
