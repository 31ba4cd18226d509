"""`vmap`: a function of one lane as a function of all lanes."""
