"""Values of a model that are recorded while it runs: `gc.summary`."""
