"""Where the objects of a TensorFlow checkpoint keep its variables.

A checkpoint calls a variable by the first path on which it was met, which may be that of an
optimiser; the graph of its objects, a string beside the variables, knows the others:

    TrackableObjectGraph {1: node {1: child {1: node, 2: name}, 2: attribute {3: variable}}}
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from graphc.formats.tensorflow.checkpoint import GRAPH, Array, Damaged, opened, read_fields
from graphc.limits import check_within

MOST_FIELDS = 2_000_000  # of all messages together: a child is three; about two seconds
MOST_STEPS = 1000  # of a path


def read_by_path(path: Path) -> dict[str, Array]:
    """The variables of a checkpoint by the shortest path to each that leads past optimisers; those
    that have none of their own keep their names.  Raises GraphError for a file that is missing or
    damaged."""
    with opened(path) as checkpoint:
        variables = checkpoint.variables()
        paths = _paths(checkpoint.text(GRAPH), variables)
        return {paths.get(key, key): array for key, array in variables.items()}


def _paths(proto: bytes, keys: Collection[str]) -> dict[str, str]:
    """The paths of variables, but for those that are another's path or key."""
    parents, holders = _objects(proto)
    made, taken, total = dict[str, str](), {"", *keys}, 0
    for key, number in holders.items():
        if key in keys:
            path = _path(parents, number)
            total += len(path)
            check_within("text_bytes", total, f"paths of variables have {total} characters")
            if path not in taken:
                made[key] = path
                taken.add(path)
    return made


def _objects(proto: bytes) -> tuple[dict[int, tuple[int, bytes]], dict[str, int]]:
    """The parent of each object on the shortest path to it, with the object's name there, and
    which object has each variable, those near the root first."""
    left = iter(range(MOST_FIELDS))

    def fields_of(message: bytes) -> Iterator[tuple[int, Any]]:
        for pair in read_fields(message):
            if next(left, None) is None:
                raise Damaged(f"the graph of its objects has more than {MOST_FIELDS} fields")
            yield pair

    nodes = [v if isinstance(v, bytes) else b"" for field, v in fields_of(proto) if field == 1]
    parents, holders = {0: (0, b"")}, dict[str, int]()
    waiting = [0] if nodes else []
    for number in waiting:  # grows behind itself
        for field, value in fields_of(nodes[number]):
            fields = dict(fields_of(value)) if isinstance(value, bytes) else {}
            if field == 2 and isinstance(fields.get(3), bytes):
                holders.setdefault(fields[3].decode("utf-8", "replace"), number)
            child, name = fields.get(1, 0), fields.get(2, b"")
            if field != 1 or not isinstance(child, int) or not isinstance(name, bytes):
                continue
            if child < len(nodes) and child not in parents and not name.startswith(b"optimizer"):
                parents[child] = number, name
                waiting.append(child)
    return parents, holders


def _path(parents: dict[int, tuple[int, bytes]], number: int) -> str:
    names = list[bytes]()
    while number:
        if len(names) == MOST_STEPS:
            raise Damaged(f"a variable lies behind more than {MOST_STEPS} objects")
        number, name = parents[number]
        names.append(name)
    return b"/".join(reversed(names)).decode("utf-8", "replace")
