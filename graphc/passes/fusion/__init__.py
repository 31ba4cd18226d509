"""Which nodes are one kernel."""
