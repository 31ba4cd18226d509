"""Input: queues and readers, which programs call by name where their data is needed."""
