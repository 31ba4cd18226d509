"""`graphc run --check`: what ran against the reference of the very same program, and what its short
transfers or narrow products change about its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from graphc.base.record import record
from graphc.cli.commands import Mismatch
from graphc.cli.common import without_prints
from graphc.ops.control.transfer_casts import widen16
from graphc.passes.compare import TOLERANCE, distance
from graphc.passes.rounding import roundings
from graphc.runtime.devices.multi_device import TeamFrame

if TYPE_CHECKING:
    from graphc.frontend.compile.build import Built
    from graphc.frontend.files.loaded_graph import LoadedGraph
    from graphc.ir.graph import Graph, Node, Program, Rewriter

COLUMNS = ["result", "relative error of lost precision", "bound for all data"]
Results = list[Any]


@record
class Reference:
    """The interpreter on a loaded graph.

    Variables are as they were when this was made, and stay so.  `lost` says for each result what
    short transfers or narrow products change about it, relative to its largest magnitude, and the
    bound of that.
    """

    loaded: LoadedGraph
    state: dict[Any, Any]
    lost: list[tuple[Any, ...]] | None = None
    sent: dict[str, list[Any]] = field(default_factory=dict)  # the messages of the latest run

    def run(self, built: Built | None, values: list[Any]) -> Results:
        """The results of the program that was compiled, with what it has lost in precision."""
        from graphc.ir.specialise import specialise

        arrays = self.loaded.check(values)
        exact, narrow = self.loaded.bound_to(arrays), _narrow_graph(built)
        short: Graph | Program | None = _short_program(built)
        if short is None and narrow is not None:
            short = specialise(narrow, self.loaded.bind([a.shape for a in arrays]))
        self.sent = {}
        made = self._interpret(exact if short is None else short, arrays, sent=self.sent)
        if short is not None and built is not None and (bound := _bound(built)) is not None:
            from graphc.passes.measured_error import result_error

            whole = self._interpret(exact, arrays)
            errors = map(result_error, whole, made)
            self.lost = [
                (name, error, bound) for name, error in zip(self.loaded.result_names, errors)
            ]
        return made

    def compare(self, built: Built, values: list[Any], results: Results, other: Results) -> None:
        """Exit 3, naming the results, unless both agree but for rounding (see `passes.rounding`).

        Rounding may move a value over the edge between two of 16 bits.  So results of narrow
        products may be as far apart as values of 16 bits, and where those of short transfers are,
        each message has to be what cutting a value within the tolerance gives, and the
        results what the reference makes of these messages.
        """
        narrow = 0.0 if _narrow_graph(built) is None else TOLERANCE["bf16"]
        rows = self._far(results, other, narrow)
        short = _short_program(built)
        if short is not None and rows:
            rows = self._replayed(short, built, self.loaded.check(values), results)
        if rows:
            self._require_settled(values, results, other)
            click.echo("mismatch between the compiled and the reference result", err=True)
            for text in rows[:20]:
                click.echo(f"  {text}", err=True)
            raise Mismatch

    def record(self, built: Built) -> None:
        """Have the next run keep the short messages that it sends, as many as the reference did."""
        short = _short_program(built)
        if short is not None:
            room = {c: len(self.sent.get(c, ())) + 1 for c in _short_channels(short)}
            executable = built.executable
            frame = executable._take()  # which the next run takes again
            assert isinstance(frame, TeamFrame)
            frame.channels.record(executable.image.channels, room)
            executable.give(frame)

    def _replayed(
        self, short: Program, built: Built, arrays: list[Any], results: Results
    ) -> list[str]:
        """What differs when the reference gets the messages of the run (it was the last one)."""
        executable = built.executable
        assert isinstance(executable._frames[0], TeamFrame)
        bits = executable._frames[0].channels.carried(executable.image.channels)
        given = {
            channel: [np.frombuffer(b, "u2").reshape(self.sent[channel][0].shape) for b in kept]
            for channel in _short_channels(short)
            if (kept := bits.get(channel)) and channel in self.sent
        }
        rows = self._far(results, self._interpret(short, arrays, given=given))
        ends: list[dict[str, list[Any]]] = [{}, {}]
        for factor, found in zip((1 - TOLERANCE["f32"], 1 + TOLERANCE["f32"]), ends, strict=True):
            moved = short.map(partial(_nudged, factor=factor))
            self._interpret(moved, arrays, sent=found, given=given)
        for channel, messages in given.items():
            counts = {len(messages), *(len(found[channel]) for found in ends)}
            if len(counts) > 1:
                rows.append(f"{channel}: {len(messages)} messages, not {max(counts)}")
            for message, *around in zip(messages, *(found[channel] for found in ends)):
                rows += _outside(channel, message, *around)
        return rows

    def _require_settled(self, values: list[Any], results: Results, others: Results) -> None:
        """Raise GraphError where rounding alone makes results as far apart."""
        from graphc.passes.trial import Trial, require_settled

        arrays = self.loaded.check(values)
        trial = Trial(self.loaded.bound_to(arrays), arrays, self.state, self.loaded.config)
        require_settled(trial, trial.named(results, {}), trial.named(others, {}))

    def _far(self, results: Results, others: Results, least: float = 0.0) -> list[str]:
        """The results that are farther from the others than they, or a number, allow."""
        graph = self.loaded.graph  # that of a model with open sizes is traced anew each time
        moved, _ = roundings(graph)
        allowed = [max(least, moved[node]) for node in graph.results]
        return _far(self.loaded.result_names, results, others, allowed)

    def _interpret(self, graph: Graph | Program, arrays: list[Any], **mail: Any) -> Results:
        from graphc.frontend.compile.memory_check import check_memory
        from graphc.ops.reference.interpreter import interpret

        check_memory(graph, every_node=True)
        with without_prints():
            return interpret(graph, arrays, state=dict(self.state), **mail)


def _outside(channel: str, message: Any, low: Any, high: Any) -> list[str]:
    """How far a message is from all that cutting a value within the tolerance gives."""
    low, high, mine = widen16(low), widen16(high), widen16(message)
    return _far(
        (f"message {channel}",),
        [mine],
        [np.clip(mine, np.minimum(low, high), np.maximum(low, high))],
        [0.0],
    )


def reference(loaded: LoadedGraph) -> Reference:
    """The reference of a graph, with the present values of its variables."""
    return Reference(loaded, loaded.variable_values())


# ------------------------------------------------------------------------------------ short ones


def _short_program(built: Built | None) -> Program | None:
    """The program with its devices and short transfers, as it is before kernels are made of it;
    None if nothing is shortened."""
    from graphc.ir.graph import Program

    found = {r.name: r.value for r in built.stages} if built is not None else {}
    value = found.get("schedule")
    if isinstance(value, Program) and _short_channels(value):
        return value
    return None


def _narrow_graph(built: Built | None) -> Graph | None:
    """The graph whose products read 16 bits; None if all read what is given."""
    from graphc.ir.graph import Graph

    for before, after in pairwise(built.stages if built is not None else ()):
        if after.name == "narrow_products" and after.value is not before.value:
            assert isinstance(after.value, Graph)
            return after.value
    return None


def _cuts(node: Node) -> bool:
    """Is the node the one that cuts a value to 16 bits?"""
    return node.op.name == "truncate16"


def _short_channels(program: Program) -> list[str]:
    """The channels that carry what was cut to 16 bits."""
    from graphc.ir.channels import ends

    sends, _ = ends(program.graphs)
    return [c for c, n in sends.items() if n.inputs and _cuts(n.inputs[0])]


def _bound(built: Built) -> float | None:
    """The most that lost precision changes about the results, whatever the data are; infinite if
    nothing bounds it, and None if the exact program is not known."""
    from graphc.ir.graph import Program
    from graphc.ops.control.transfer_casts import WORST
    from graphc.passes.devices.conditioning import weights

    stages = {r.name: r.value for r in built.stages}
    if _narrow_graph(built) is not None:
        return math.inf
    whole, short = stages.get("partition"), _short_program(built)
    if not isinstance(whole, Program) or short is None:
        return None
    weight = weights(whole)
    nodes = [node for graph in short.graphs for node in graph.nodes if _cuts(node)]
    unit = max((WORST[node.attrs["mode"]] for node in nodes), default=math.inf)
    return sum(weight.get(channel, math.inf) * unit for channel in _short_channels(short))


def _nudged(graph: Graph, factor: float) -> Graph:
    """The graph with every value multiplied before it is cut."""
    from graphc.ir.graph import map_regions, rebuild
    from graphc.ir.literal import literal
    from graphc.ir.op import OPS

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = map_regions(node, lambda region: _nudged(region, factor))
        if _cuts(node):
            number = r.emit(OPS["const"], (), {"value": literal(np.float32(factor))})
            made = node.replace(inputs=(r.emit(OPS["mul"], (*node.inputs, number)),))
        if made is node:
            return None
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite)


# ------------------------------------------------------------------------------------ differences


def _far(
    names: Sequence[str], results: Results, others: Results, tolerances: Sequence[float]
) -> list[str]:
    """The arrays that are farther from the others than their dtype, or a tolerance, allows."""
    rows = []
    for name, mine, other, tolerance in zip(names, results, others, tolerances):
        error, allowed = distance(mine, other, tolerance)
        if not error <= allowed:
            rows.append(f"{name}: largest difference {error:.3g}, allowed {allowed:.3g}")
    return rows


def lost_dicts(lost: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The rows for --json, which has no word for what is infinite."""
    return [
        {"name": name, "relative_error": error, "bound": bound if math.isfinite(bound) else None}
        for name, error, bound in lost
    ]


def lost_rows(lost: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows of a table."""
    return [
        (name, f"{error:.3g}", f"{bound:.3g}" if math.isfinite(bound) else "none")
        for name, error, bound in lost
    ]
