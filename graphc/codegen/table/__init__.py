"""The step table: rows for kernels, control flow, blocks, copies and messages."""
