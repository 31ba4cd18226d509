"""How fast graphc is beside its peers: `make bench`, or `python -m benchmarks --help`.

`cases` holds the programs, `in_torch`, `in_jax` and `in_onnx` the same programs for the peers,
`peers` how each peer prepares a call, `worker` one measurement in a fresh process, `roofline` the
machine's own speed at that moment, `memory` what calls need, `report` the tables.  `scale` counts
microseconds per node. `sweep` (`make sweep`) goes through hundreds of operations and small models,
a table in `sweep_cases` and `sweep_library`, with every peer in a process of its own.
"""
