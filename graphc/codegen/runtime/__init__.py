"""Native code that is no kernel: the step-table walker, the thread pool, the call entry."""
