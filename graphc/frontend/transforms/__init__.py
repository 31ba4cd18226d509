"""Functions of functions: gradients, control flow, markers."""
