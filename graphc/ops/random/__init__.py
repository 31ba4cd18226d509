"""Random numbers as pure functions of a key."""
