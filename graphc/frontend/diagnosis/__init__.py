"""Finding out: which rewrite changes a result, what the smallest graph is that does so, and why."""
