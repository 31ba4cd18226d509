"""Programs whose devices are other processes."""
