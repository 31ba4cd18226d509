"""One graph per device: partition, messages in half the bytes, when each recv begins."""
