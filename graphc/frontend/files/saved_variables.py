"""The values of a graph's variables beside its text: data in the weights file, a comment for names.

    # variables {"main": {"w": "5891b5b522d5df086d0ff0b110fbd9d2"}}

Reading such a graph makes the variables that are not there yet; those that are keep their value.
A loaded graph has containers of its own unless they are shared: a file neither reads nor changes
what the program keeps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from graphc.errors import GraphError, ParseError
from graphc.ir.graph import Graph, Node, Program, Rewriter, map_regions, rebuild
from graphc.ir.literal import Literal, literal
from graphc.ir.op import Effect
from graphc.ir.types import Type
from graphc.ops.record.effects import OUTSIDE, Key, accesses, is_token
from graphc.runtime.call import variable as runtime
from graphc.runtime.load.program import Slot, dtype_name

_LINE = re.compile(r"# variables (\{.*\})")


def keys_of(value: Graph | Program) -> list[Key]:
    """The variables that a graph reads or assigns, regions included."""
    graphs = value.graphs if isinstance(value, Program) else (value,)
    found: dict[Key, None] = {}
    for graph in graphs:
        for node in graph.nodes:
            found.update(dict.fromkeys(accesses(node.op, node.attrs, node.regions)))
    return [key for key in found if key != OUTSIDE and not is_token(key)]


def with_containers(value: Graph | Program, names: Mapping[str, str]) -> Graph | Program:
    """The graph with its variables in other containers."""
    if all(old == new for old, new in names.items()):
        return value
    if isinstance(value, Program):
        return value.map(lambda graph: _renamed(graph, names))
    return _renamed(value, names)


def _renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = map_regions(node, lambda region: _renamed(region, names))
        if Effect.PURE < node.op.effect <= Effect.WRITE:
            container = names[node.attrs["container"]]
            attrs = {**node.attrs.values_dict, "container": container}
            made = made.replace(attrs=node.op.coerce(attrs))
        if made is node:
            return None
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite)


def declare(value: Graph | Program, containers: Collection[str]) -> None:
    """Make those variables in containers that the graph uses and that are not there yet."""
    graphs = list(value.graphs if isinstance(value, Program) else (value,))
    while graphs:
        for node in graphs.pop().nodes:
            graphs.extend(node.regions)
            if not Effect.PURE < node.op.effect <= Effect.WRITE or not isinstance(node.type, Type):
                continue
            home, name = runtime.container(node.attrs["container"]), node.attrs["name"]
            if home.name in containers and name not in home.cells and node.type.is_static:
                home.declare(name, Slot(name, node.type.dtype.name, node.type.dims), node.loc)


def values_of(value: Graph | Program) -> dict[Key, Literal]:
    """The present values of the variables of a graph that have one."""
    made = {}
    for container, name in keys_of(value):
        cell = runtime.container(container).cells.get(name)
        if cell is not None and not cell.was_reset:
            cell.settle()
            if cell.ready:
                made[container, name] = literal(cell.value())
    return made


def arrays_of(value: Graph | Program) -> dict[Key, Any]:
    """The same as arrays."""
    return {key: item.array for key, item in values_of(value).items()}


def comment(values: Mapping[Key, Literal]) -> list[str]:
    """The line that names them."""
    table: dict[str, dict[str, str]] = {}
    for (container, name), item in values.items():
        table.setdefault(container, {})[name] = item.digest
    return [f"# variables {json.dumps(table)}"] if table else []


def digests(comments: list[str]) -> dict[Key, str]:
    """The digest of each variable's value. Raises ParseError for a line that is not understood."""
    lines = [match[1] for line in comments if (match := _LINE.fullmatch(line))]
    made: dict[Key, str] = {}
    for line in lines:
        try:
            table = json.loads(line)
            made |= {(c, n): digest for c, names in table.items() for n, digest in names.items()}
        except (AttributeError, RecursionError, ValueError):
            raise ParseError("the line of variables is not understood", details=(line,)) from None
    if not all(isinstance(digest, str) for digest in made.values()):
        raise ParseError("the line of variables names a digest that is none")
    return made


def restore(
    values: Mapping[Key, str],
    tensors: Mapping[str, Any] | None,
    file: str,
    names: Mapping[str, str],
) -> None:
    """Make the variables that are not there yet, each in the container that `names` says instead
    of its own. Raises GraphError where the data is missing.
    """
    for (container, name), digest in values.items():
        if container not in names:  # of no use to the graph
            continue
        home = runtime.container(names[container])
        known = home.cells.get(name)
        if known is not None and not known.was_reset:
            continue
        if tensors is None or digest not in tensors:
            raise GraphError(
                f"{file} needs the value of variable {name!r}, which is not in its weights file",
                hint="put the .safetensors file that was saved with it beside it",
            )
        array: np.ndarray[Any, Any] = tensors[digest]
        slot = Slot(name, dtype_name(array.dtype), array.shape)
        home.declare(name, slot, None).assign(array)
