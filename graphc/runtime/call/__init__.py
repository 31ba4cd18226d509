"""A call: entry, frame, memory, variables, failures."""
