"""The reference interpreter: NumPy, node by node. It is the oracle of all tests."""
