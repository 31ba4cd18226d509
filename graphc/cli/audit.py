"""`graphc audit`: parameters, bytes and flops of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from graphc.cli.common import MODEL, json_option, load_graph, print_json, print_table
from graphc.cli.compile import binding_option, parse_bindings
from graphc.errors import plain
from graphc.ir.op import STATE

_MOST_CONSTANTS = 40


@click.command("audit")
@click.argument("model", type=MODEL)
@binding_option
@json_option
def audit_command(model: Path, bindings: tuple[str, ...], as_json: bool) -> None:
    """Count the parameters per variable and constant, bytes and flops of MODEL; of a file of
    weights (.npz, .safetensors, .weights.h5, .index, a SavedModel's folder) its arrays.
    """
    from graphc.formats.convert import arrays_of

    arrays = arrays_of(model)
    if arrays is not None:
        _print_weights(arrays, as_json)
        return
    loaded = load_graph(model, weights=False)
    record = audit(loaded.bound(parse_bindings(bindings)) if bindings else loaded.graph)
    if as_json:
        print_json(record)
        return
    inputs, constants = record["inputs"], record["constants"]
    columns = ["name", "type", "elements", "bytes"]
    print_table("inputs", columns, _cells(inputs))
    if record["variables"]:
        click.echo()
        print_table("variables", columns, _cells(record["variables"]))
    if constants:
        click.echo()
        shown = sorted(constants, key=lambda row: -int(row["bytes"] or 0))[:_MOST_CONSTANTS]
        print_table("constants", columns, _cells(shown))
    click.echo()
    ops = [tuple(row.values()) for row in record["ops"]]
    print_table("ops", ["op", "count", "flops", "bytes moved"], ops)
    click.echo()
    total = record["total"]
    click.echo(
        f"{counted(total['parameters'], 'parameter')} in {counted(total['constants'], 'constant')} "
        f"and {counted(total['variables'], 'variable')} ({total['parameter_bytes']:,} bytes), "
        f"{total['operations']:,} operations with those inside of loops and branches, "
        f"{total['flops']:,.0f} flops, {total['bytes']:,.0f} bytes moved"
    )
    if total["open"]:
        click.echo(
            f"{total['open']:,} operations on open sizes are left out of flops and bytes: "
            "--bind NAME=SIZE counts them"
        )


def _cells(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What tables show of arrays: those of open sizes have no number."""
    return [tuple("open" if cell is None else cell for cell in row.values()) for row in rows]


def _print_weights(arrays: dict[str, Any], as_json: bool) -> None:
    rows = [
        {"name": name, "dtype": str(a.dtype), "shape": list(a.shape), "bytes": a.nbytes}
        for name, a in arrays.items()
    ]
    total = {"arrays": len(rows), "parameters": sum(a.size for a in arrays.values())}
    total["bytes"] = sum(a.nbytes for a in arrays.values())
    if as_json:
        print_json({"weights": rows, "total": total})
        return
    shown = sorted(rows, key=lambda row: -int(row["bytes"]))[:_MOST_CONSTANTS]
    print_table("weights", ["name", "dtype", "shape", "bytes"], [tuple(r.values()) for r in shown])
    click.echo()
    click.echo(
        f"{counted(total['parameters'], 'parameter')} in {counted(total['arrays'], 'array')} "
        f"({total['bytes']:,} bytes)"
    )


def audit(value: Any) -> dict[str, Any]:
    """Inputs, variables, constants of more than one element, cost per op and totals, as plain
    data.
    """
    flops: dict[str, float] = defaultdict(float)
    moved: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    uncounted = 0
    constants: dict[Any, dict[str, Any]] = {}
    variables: dict[Any, dict[str, Any]] = {}
    named = getattr(value, "names", {})  # a program has none of its own
    names = {id: name for name, id in named.items()}
    for node in nodes_of(value):
        counts[node.op.name] += 1
        cost = cost_of(node)
        work, traffic = cost or (0.0, 0.0)
        uncounted += cost is None
        flops[node.op.name] += work
        moved[node.op.name] += traffic
        if node.op.traits.constant and node.type.shape:
            literal = node.attrs["value"]
            title = names.get(node.id) or told(node)
            constants.setdefault(literal.key, _tensor(title, node.type))
        elif node.op.effect in STATE:
            name = f"{node.attrs['container']}/{node.attrs['name']}"
            variables.setdefault(name, _tensor(name, node.type))
    held = [*constants.values(), *variables.values()]
    return {
        "inputs": [_tensor(p.attrs["name"], p.type) for p in value.params],
        "variables": list(variables.values()),
        "constants": list(constants.values()),
        "ops": [
            {"op": op, "count": counts[op], "flops": flops[op], "bytes": moved[op]}
            for op in sorted(counts, key=lambda op: (-flops[op], -counts[op], op))
        ],
        "total": {
            "operations": sum(counts.values()),
            "constants": len(constants),
            "variables": len(variables),
            "parameters": sum(row["elements"] or 0 for row in held),
            "parameter_bytes": sum(row["bytes"] or 0 for row in held),
            "flops": sum(flops.values()),
            "bytes": sum(moved.values()),
            "open": uncounted,
        },
    }


def told(node: Any) -> str:
    """A node without a name: its number, which others may have in other bodies, and its line."""
    where = f" ({plain(node.loc[0])}:{node.loc[1]})" if node.loc is not None else ""
    return f"%{node.id}{where}"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


def nodes_of(value: Any) -> Iterator[Any]:
    """Every node that computes, bodies of regions in place of the nodes that hold them."""
    pending = list(reversed(getattr(value, "graphs", (value,))))
    while pending:
        graph = pending.pop()
        for node in graph.nodes:
            if node.regions:
                pending.extend(node.regions)
            else:
                yield node


def cost_of(node: Any) -> tuple[float, float] | None:
    """(flops, bytes moved) of a node, zero where nothing is computed; None for open sizes."""
    from graphc.ir.op import Alias, Structural
    from graphc.ir.types import Type, leaves

    every = [kind for n in (node, *node.inputs) for kind in leaves(n.type)]
    kinds = [kind for kind in every if isinstance(kind, Type) and kind.is_static]
    if isinstance(node.op.lower, Structural | Alias):
        return 0.0, 0.0
    if len(kinds) != len(every):
        return None
    if node.op.cost is not None:
        found: tuple[float, float] = node.op.estimate(node)
        return found
    return 0.0, float(sum(kind.nbytes for kind in kinds))


def _tensor(name: str, kind: Any) -> dict[str, Any]:
    static = getattr(kind, "is_static", False)
    return {
        "name": name,
        "type": str(kind),
        "elements": kind.size if static else None,
        "bytes": kind.nbytes if static else None,
    }
