"""compress: half the bytes between devices, for values that may lose precision.

    cpu:0   %2 = tanh(%0)   %8 = truncate16(%2) : u16   send(%8) {c0}
    cpu:1   %9 = recv() {c0} : u16   %10 = widen16(%9) : f32   %3 = neg(%10)

The conversions are nodes like any other and are fused into the kernels around them.  Only f32 is
shortened (`control/transfer_casts.py`), and never feeds, results, what variables are assigned, what
`gc.exact` marks, views of any of these, or anything within a device.  With an error budget the
module `error_budget` chooses the channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING

from graphc.base.record import record
from graphc.config import Config
from graphc.ir.channels import ends
from graphc.ir.graph import Graph, Node, Program, Rewriter, map_regions, rebuild
from graphc.ir.op import Alias, Compute, Effect
from graphc.ir.place import device_of
from graphc.ir.sizes import hint_of
from graphc.ir.types import DTYPES, F32, Type, tensor
from graphc.ops.control.transfer_casts import TRUNCATE, WIDEN, WORST
from graphc.passes import reasons

if TYPE_CHECKING:
    from graphc.passes.devices.error_budget import Choice

U16 = DTYPES["u16"]


@record(frozen=True, eq=False)
class Edge:
    """A channel that carries f32: its two ends, bytes of a message (for the sizes at hand), and why
    it must not be shortened (empty if it may)."""

    channel: str
    send: Node
    recv: Node
    nbytes: int
    refused: str

    @property
    def saved(self) -> int:
        return self.nbytes // 2


@record(frozen=True, eq=False)
class Plan:
    """A program with some channels shortened, and what speaks for and against each."""

    program: Program
    edges: list[Edge]
    choices: Mapping[str, Choice]
    mode: str

    @property
    def taken(self) -> list[Edge]:
        return [e for e in self.edges if e.channel in self.choices and self.choices[e.channel].take]


def compress(program: Program, config: Config) -> Program:
    """The program of several devices with shortened transfers."""
    plan = compressed(program, config)
    for edge in plan.edges:
        reasons.explain(edge.send.inputs[0].id, explanation(edge, plan))
    saved, whole = sum(e.saved for e in plan.taken), sum(e.nbytes for e in plan.edges)
    count = f"{len(plan.taken)} of {len(plan.edges)} f32 transfers shortened"
    reasons.summarise(f"{count}, {saved:,} of {whole:,} bytes saved")
    return plan.program


def compressed(program: Program, config: Config) -> Plan:
    """Choose the channels of a program, and shorten them."""
    from graphc.passes.devices.error_budget import chosen_channels

    mode = config.compress if isinstance(config.compress, str) else "truncate"
    edges = edges_of(program)
    possible = {e.channel: e.saved for e in edges if not e.refused}
    choices = chosen_channels(program, possible, mode, config, shortened)
    taken = frozenset(channel for channel, choice in choices.items() if choice.take)
    return Plan(shortened(program, taken, mode), edges, choices, mode)


def explanation(edge: Edge, plan: Plan) -> str:
    """What one channel saves and costs."""
    device = device_of(edge.recv.place)
    name = f"{edge.channel} to {device.short}" if device else edge.channel
    if edge.refused:
        return f"{name} stays exact: {edge.refused}"
    choice = plan.choices[edge.channel]
    bound = f"relative error at most {WORST[plan.mode]:.2g}"
    if isfinite(choice.worst):
        bound += f", measured {choice.worst:.2g} (mean {choice.mean:.2g})"
    end = f"; {choice.text}" if choice.text else ""
    if not choice.take:
        return f"{name} stays exact, {edge.saved:,} bytes not saved: {bound}{end}"
    return f"{name} saves {edge.saved:,} bytes a message: {bound}{end}"


# -------------------------------------------------------------------------- which may be shortened


def edges_of(program: Program) -> list[Edge]:
    """Every channel that carries f32, also inside regions."""
    sends, recvs = ends(program.graphs)
    readers = _exact_readers(program)
    kept = dict.fromkeys(moved_from(program.results), "it is a result")
    for graph in program.graphs:
        stored = [n.inputs[0] for n in graph.nodes if n.op.effect is Effect.WRITE]
        kept |= dict.fromkeys(moved_from(stored), "a variable keeps it")
    found = []
    for channel, send in sends.items():
        kind = recvs[channel].type
        if isinstance(kind, Type) and kind.dtype is F32 and kind.is_static and kind.size:
            recv = recvs[channel]
            refused = kept.get(recv) or _refused(send, recv, program, readers)
            found.append(Edge(channel, send, recv, hint_of(kind.nbytes), refused))
    return found


def _refused(send: Node, recv: Node, program: Program, readers: set[Node]) -> str:
    sources = moved_from(send.inputs)
    if not sources.isdisjoint(program.params):
        return "it is a feed"
    exact = recv in readers or any(n.op.traits.exact for n in sources)
    return "it is marked exact" if exact else ""


def _exact_readers(program: Program) -> set[Node]:
    """What `exact` nodes read, at any depth."""
    found: set[Node] = set()
    pending = list(program.graphs)
    while pending:
        for node in pending.pop().nodes:
            pending.extend(node.regions)
            if node.op.traits.exact:
                found |= moved_from(node.inputs)
    return found


def moved_from(values: Iterable[Node]) -> set[Node]:
    """The values themselves and what they have only moved elements of."""
    found: set[Node] = set()
    pending = list(values)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            moves = isinstance(node.op.lower, Alias | Compute) and not node.op.traits.exact
            pending += node.inputs if moves else ()
    return found


# ------------------------------------------------------------------------------------ the rewriting


def shortened(program: Program, channels: frozenset[str], mode: str) -> Program:
    """The program with conversions around these channels."""
    return program.map(lambda g: _shorten(g, channels, mode)) if channels else program


def _shorten(graph: Graph, channels: frozenset[str], mode: str) -> Graph:
    short: dict[Node, Node] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.regions:
            made = map_regions(node, lambda region: _shorten(region, channels, mode))
            if made is not node:
                r.nodes.append(made)
                return made
        if node.op is TRUNCATE and node.attrs["mode"] == mode:  # for all its readers
            first = short.setdefault(node.inputs[0], node)
            return first if first is not node else None
        if node.op.effect is not Effect.COMM or node.attrs["channel"] not in channels:
            return None
        if node.op.traits.recv:
            return _widened(node, r)
        (value,) = node.inputs
        if value not in short:
            is_short = value.op is WIDEN  # it has been rounded, and is not so again
            cut = value.inputs[0] if is_short else None
            short[value] = cut or r.emit(TRUNCATE, (value,), {"mode": mode})
        made = node.replace(inputs=(short[value],))
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite, each=False)  # both ends of a channel, or neither


def _widened(node: Node, r: Rewriter) -> Node:
    assert isinstance(node.type, Type)
    kind = tensor(U16, node.type.shape)
    attrs = node.op.coerce({**node.attrs, "type": kind})
    made = node.replace(attrs=attrs, type=kind)
    r.nodes.append(made)
    return r.emit(WIDEN, (made,))
