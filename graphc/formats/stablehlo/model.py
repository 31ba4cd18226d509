"""A graph as a StableHLO module, which is checked before its file appears.

    traced graph -> gradients expanded -> operations by rule -> text -> compiled, run -> file

Where JAX is installed, its compiler parses and runs the module, which must compute what graphc's
interpreter does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.config import Config
from graphc.errors import GraphError
from graphc.formats.exporting import Refused
from graphc.formats.onnx.export.model import Checked, require_equal, state_of, trial
from graphc.formats.stablehlo.writer import Writer, text_of, type_of
from graphc.frontend.files.saved_variables import values_of
from graphc.ir.graph import Graph
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.gradient import gradient
from graphc.runtime.files.files import write_atomically
from graphc.seams import jaxlib

Array = np.ndarray[Any, Any]


def save(graph: Graph, path: Path, feeds: Mapping[str, Any] | None = None) -> Checked:
    """Write a graph as a StableHLO module; the file appears when the module has passed its checks.

    `feeds` are arrays by name to try it on; without them they are drawn at random.  Raises
    GraphError that lists every op that cannot be written, and for a module that computes something
    else.
    """
    text = text_of_graph(graph)
    checked = check(text, graph, feeds)
    write_atomically(path, [text.encode()])
    return checked


def text_of_graph(graph: Graph) -> str:
    """The module of a graph: its function is @main, its arguments those of the graph in order.
    Raises GraphError that lists every op that cannot be written."""
    import graphc.formats.stablehlo.rules  # noqa: F401  (fills the table)

    writer = Writer({key: item.array for key, item in values_of(graph).items()})
    expanded = gradient(graph, Config.create())
    try:
        types = [text_of(type_of(p)) for p in expanded.params]
    except Refused as refused:
        raise GraphError(f"@{graph.name} cannot be written: {refused}") from None
    params = [_param(k, type_of(p)) for k, p in enumerate(expanded.params)]
    made = writer.whole(expanded, params)
    declared = ", ".join(
        f"{p.name}: {t} {{jax.arg_info = {_quoted(n.attrs['name'])}}}"
        for p, t, n in zip(params, types, expanded.params)
    )
    gives = [text_of(v.type) for v in made]
    told = ", ".join(
        f"{t} {{jax.result_info = {_quoted(name)}}}" for t, name in zip(gives, graph.result_names)
    )
    names = ", ".join(v.name for v in made)
    return "\n".join(
        (
            f"module @{_symbol(graph.name)} {{",
            f"  func.func public @main({declared}) -> ({told}) {{",
            *writer.lines,
            f"    func.return {names} : {', '.join(gives)}" if made else "    func.return",
            "  }",
            "}",
            "",
        )
    )


def _param(number: int, kind: Any) -> Any:
    from graphc.formats.stablehlo.writer import Value

    return Value(f"%arg{number}", kind)


def _symbol(name: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in name) or "_"


def _quoted(name: str) -> str:
    """A string in MLIR's words: what is no plain character stands as its bytes."""
    held = name.encode("utf-8", "backslashreplace")
    plain = (chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in held)
    return f'"{"".join(plain)}"'


def check(text: str, graph: Graph, feeds: Mapping[str, Any] | None = None) -> Checked:
    """Run a module beside the interpreter. Raises GraphError where it is wrong."""
    try:
        concrete, arguments = trial(graph, feeds)
        expected = interpret(gradient(concrete, Config.create()), arguments, state=state_of(graph))
    except GraphError as error:
        return Checked((), (f"jax: {error.message}",))
    found = run(text, arguments)
    if found is None:
        return Checked((), ("jax: not installed",))
    require_equal("jax", graph, found, expected)
    return Checked(("jax",), ())


def run(text: str, arguments: Sequence[Array]) -> list[Array] | None:
    """What XLA makes of a module; None without JAX. Raises GraphError for text that it refuses."""
    try:
        return jaxlib.run(text, arguments)
    except jaxlib.NotThere:
        return None
    except jaxlib.Rejected as error:
        raise GraphError("XLA refuses the module", details=(str(error)[:300],)) from None
