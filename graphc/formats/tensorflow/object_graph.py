"""Where the objects of a TensorFlow checkpoint keep its variables.

A checkpoint calls a variable by the first path on which it was met, which may be that of an
optimiser; the graph of its objects, a string beside the variables, knows the others:

    TrackableObjectGraph {1: node {1: child {1: node, 2: name}, 2: attribute {3: variable}}}
"""

from __future__ import annotations

from pathlib import Path

from graphc.formats.tensorflow.checkpoint import Array, opened, read_fields

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def read_by_path(path: Path) -> dict[str, Array]:
    """The variables of a checkpoint by the shortest path to each that leads past optimisers; those
    that have none keep their names.  Raises GraphError for a file that is missing or damaged."""
    with opened(path) as checkpoint:
        paths = _paths(checkpoint.text(GRAPH))
        return {paths.get(key, key): array for key, array in checkpoint.variables().items()}


def _paths(proto: bytes) -> dict[str, str]:
    nodes = [v if isinstance(v, bytes) else b"" for field, v in read_fields(proto) if field == 1]
    found, made = {0: ""}, dict[str, str]()
    waiting = [0] if nodes else []
    for number in waiting:  # grows behind itself
        for field, value in read_fields(nodes[number]):
            fields = dict(read_fields(value)) if isinstance(value, bytes) else {}
            if field == 2 and isinstance(fields.get(3), bytes):
                made.setdefault(fields[3].decode("utf-8", "replace"), found[number])
            child, name = fields.get(1, 0), fields.get(2, b"")
            if field != 1 or not isinstance(child, int) or not isinstance(name, bytes):
                continue
            if child < len(nodes) and child not in found and not name.startswith(b"optimizer"):
                found[child] = f"{found[number]}/{name.decode('utf-8', 'replace')}".lstrip("/")
                waiting.append(child)
    return made
