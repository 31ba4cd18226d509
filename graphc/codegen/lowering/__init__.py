"""From a fused region to a kernel: the shapes a loop nest can take, and contractions."""
