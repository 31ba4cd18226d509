"""Models in the formats of others: one folder a format."""
