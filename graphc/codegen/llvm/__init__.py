"""Loop nests as LLVM IR, and from there to object code."""
