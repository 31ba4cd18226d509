"""Control flow, state, stacks, messages between devices, ops of the user's own."""
