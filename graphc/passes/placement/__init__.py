"""Which device runs what: costs, simulation, search."""
