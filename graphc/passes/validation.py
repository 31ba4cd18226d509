"""Whether a stage has kept what its graph promises (its `Contract`): translation validation, after
Pnueli, Siegel and Singerman (TACAS 1998).

Always, from structure alone: parameters and results keep their names and types, every variable that
was assigned is assigned, what calls Python still does; and behind a stage that says so, results and
effects are the same expressions of the parameters (see `value_numbers`).  On request every stage is
also run by the reference interpreter, on arguments that are drawn, in f64, in several orders that
its edges allow, beside the graph that was given.  A stage may round to the types that the graph has
(what it folds is a constant of its type), so results differ by what the narrowest of these allows.
A stage that keeps bits is run in the types of the graph, too, beside the one before it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from graphc.base.record import record, replace
from graphc.config import Config
from graphc.errors import GraphError, VerifyError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import Effect
from graphc.ir.size_answers import in_numbers
from graphc.ir.types import Type
from graphc.ir.verify import broken, graphs_of
from graphc.passes.compare import first_difference, same_bits
from graphc.passes.trial import Trial, disagreement
from graphc.passes.value_numbers import ValueNumbers

Stages = Graph | Program
MOST_BYTES = 1 << 30  # of values that a run of the interpreter may make
Ports = tuple[list[tuple[str, Any]], list[tuple[str, Any]]]


@record(frozen=True, eq=False)
class Contract:
    """What no stage may change: the ports, and what assigns or calls Python outside of regions, by
    op and attributes."""

    ports: Ports
    effects: dict[object, list[Node]]

    def ports_alone(self) -> Contract:
        """For `state`, which makes one assign of several, and none of one that changes nothing."""
        return Contract(self.ports, {})


def contract_of(value: Stages) -> Contract:
    """What the stages behind this one must keep."""
    first, effects = graphs_of(value)[0], dict[object, list[Node]]()
    for graph in graphs_of(value):
        kept = {op for op in graph.ops if op.effect is Effect.WRITE or op.effect is Effect.IO}
        for node in graph.nodes if kept else ():
            if node.op in kept:
                effects.setdefault((node.op, node.attrs), []).append(node)
    params = [(p.attrs["name"], p.type) for p in first.params]
    return Contract(
        (params, [(n, r.type) for n, r in zip(first.result_names, first.results)]), effects
    )


def check_contract(before: Contract, value: Stages) -> Contract:
    """What a stage has kept. Raises VerifyError for a port or an effect that it lost or changed."""
    after = contract_of(value)
    first = graphs_of(value)[0]
    if after.ports != before.ports:
        raise broken(first, None, "parameters or results have other names or types than before")
    for key, nodes in before.effects.items():
        if len(after.effects.get(key, ())) < len(nodes):
            raise broken(first, nodes[-1], f"%{nodes[-1].id} was dropped, and has effects")
    return after


def check_expressions(numbers: ValueNumbers, before: Stages, after: Stages) -> None:
    """Raise VerifyError for a result or an effect that is another expression than it was.

    What a branch or loop over several devices computes is not told from structure.
    """
    old = numbers.of(before)
    new = numbers.of(after) if old is not None else None
    if old is None or new is None or old == new:
        return
    pairs = [(a, b) for a, b in zip(old.results, new.results) if a != b]
    lost, found = (Counter(x.effects) - Counter(y.effects) for x, y in ((old, new), (new, old)))
    first = graphs_of(after)[0]
    for a, b in (*pairs, *zip(lost.elements(), found.elements())):
        was, made, reader = numbers.innermost(a, b)
        told = f"{made!r} stands for {was!r}, and is another expression"
        raise broken(first, made, f"{told}; {reader!r} reads it" if reader is not None else told)
    raise broken(first, None, "it does not have the effects that it had")


# ------------------------------------------------------------------------------------ by example


class Sample:
    """A graph run on arguments that are drawn; `check` compares what a stage makes of it."""

    def __init__(self, value: Stages, config: Config) -> None:
        self.trial: Trial | None = None
        self.wanted: dict[str, Any] = {}
        self.orders = 1
        nodes = [node for graph in graphs_of(value) for node in graph.nodes]
        lossy = config.shortens or config.precision != "f32"
        if not can_run([*value.params, *nodes]) or lossy:
            return
        rng = np.random.default_rng(0)
        state = {
            (node.attrs["container"], node.attrs["name"]): drawn(rng, node.type)
            for node in nodes
            if node.op.effect in (Effect.READ, Effect.WRITE) and isinstance(node.type, Type)
        }
        arrays = [drawn(rng, p.type) for p in value.params if isinstance(p.type, Type)]
        trial = Trial(value, arrays, state, config, wide=True)
        try:
            self.wanted = trial.interpret(value)
            rounded = replace(trial, wide=False).interpret(value)
        except GraphError:  # indices that are drawn may be out of range
            return
        wide = {name: _widened(rounded[name], made) for name, made in self.wanted.items()}
        if first_difference(wide, self.wanted, trial.tolerances) is not None:
            return  # here rounding decides what comes out
        self.trial = trial
        self.orders = 3 if disagreement(trial, value, self.wanted) is None else 1

    def check(self, value: Stages, before: Stages | None = None) -> None:
        """Raise VerifyError for a stage that computes something else, or other bits than the one
        `before`, if that is given."""
        if self.trial is None:
            return
        try:
            found: object = disagreement(self.trial, value, self.wanted, self.orders)
            if found is None and before is not None:
                found = self._other_bits(before, value)
        except GraphError as error:
            raise VerifyError(f"the interpreter fails: {error.message}") from error
        if found is not None:
            raise VerifyError(f"the graph computes something else: {found}")

    def _other_bits(self, before: Stages, after: Stages) -> str | None:
        assert self.trial is not None
        trial = replace(self.trial, wide=False)
        wanted, made = trial.interpret(before), trial.interpret(after)
        changed = [
            name for name in wanted if name in made and not same_bits(wanted[name], made[name])
        ]
        return f"{changed[0]} has other bits than before" if changed else None


def _widened(made: Any, as_is: Any) -> Any:
    if isinstance(made, tuple):
        return tuple(map(_widened, made, as_is))
    return made.astype(as_is.dtype) if isinstance(made, np.ndarray) else made


def can_run(nodes: list[Node]) -> bool:
    """May nodes be run again and again: known sizes, not too large, and nothing calls Python?"""
    total = 0
    for node in nodes:
        inside = [n for region in node.regions for n in region.nodes]
        if node.op.effect is Effect.IO or (inside and not can_run(inside)):
            return False
        if isinstance(node.type, Type):
            if not node.type.is_static or any(type(d) is not int for d in node.type.shape):
                return False
            total += node.type.nbytes
    return total <= MOST_BYTES


def drawn(rng: np.random.Generator, kind: Type) -> Any:
    """Numbers between -2 and 2, or small ones from 0."""
    element = kind.dtype
    if element.kind == "b" or element.is_integer:
        return rng.integers(0, 2, kind.dims).astype(element.numpy)
    made = rng.uniform(-2, 2, kind.dims)
    if element.is_complex:
        made = made + 1j * rng.uniform(-2, 2, kind.dims)
    return np.asarray(made, element.numpy)


def round_trip(value: Stages) -> None:
    """print(parse(print(g))) == print(g), with open sizes as they are at hand."""
    from graphc.ir.parse import parse
    from graphc.ir.text import literals, show

    with in_numbers():
        text = show(value)
        tensors = {found.digest: found.array for found in literals(value)}
        if show(parse(text, tensors)) != text:
            raise VerifyError("the text form does not round-trip")
