"""Products of matrices, einsum, factorisations and what is solved with them."""
