"""Is a result the reference's up to rounding?  How much that is, rounding at random shows.

A graph is interpreted some times more; each time every number that an op rounds, and what the op
reads, moves a last place up, down or not at all (the stochastic arithmetic of La Porte and Vignes:
a stable kernel gives the right result for numbers next to its own).  What does not move is exact:
sums of whole numbers agree to the last bit, while a quotient of what sums left over may be any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.types import DTYPES
from graphc.ops.reference.interpreter import Interpreter, State

Interpret = Callable[[int], list[Any]]
TIMES = 40
ROOM = 30  # times what a result moved
SMALL = 1e-5  # part of a result that is rounding without a question
INEXACT = tuple(kind.numpy for kind in DTYPES.values() if kind.kind in "fc")
MESSAGES = ("send", "recv", "read", "assign")


class Rounded(Interpreter):
    """The reference interpreter, rounding at random."""

    def __init__(self, state: State, seed: int) -> None:
        super().__init__(wide=False, state=state)
        self.wider = Interpreter(wide=True, state={})
        self.draw = np.random.default_rng(seed)

    def node(self, node: Node, inputs: list[Any]) -> Any:
        made = super().node(node, inputs)
        if node.regions or node.op.name in MESSAGES or not any(map(is_inexact, leaves(made))):
            return made
        try:
            exact = self.wider.node(node, [each(widened, part) for part in inputs])
        except GraphError:  # the bits of wider numbers are others
            return made
        if all(map(is_exact, leaves(made), leaves(exact))):
            return made
        near = super().node(node, [each(self.moved, part) for part in inputs])
        return each(self.rounded, made, exact, near)

    def rounded(self, made: Any, exact: Any, near: Any) -> Any:
        if not is_inexact(made):
            return near
        kept = unrounded(made, exact) | ~np.isfinite(made)
        return np.where(kept, made, self.moved(near)).astype(made.dtype)

    def moved(self, array: Any) -> Any:
        """Every number a last place up, down, or as it is."""
        if not is_inexact(array):
            return array
        if array.dtype.kind == "c":
            made = np.empty_like(array)
            made.real, made.imag = self.moved(array.real), self.moved(array.imag)
            return made
        way = self.draw.integers(-1, 2, array.shape)
        toward = np.where(way < 0, -np.inf, np.inf).astype(array.dtype)
        return np.where(way == 0, array, np.nextafter(array, toward))


def rounded(value: Graph | Program, given: list[Any], state: State, seed: int) -> list[Any]:
    """The results when rounding is random."""
    with np.errstate(all="ignore"):
        return Rounded(state, seed).value(value, given)


def leaves(value: Any) -> list[Any]:
    return (
        [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]
    )


def each(function: Callable[..., Any], *values: Any) -> Any:
    """The function of the parts of tuples of one form."""
    if not isinstance(values[0], tuple):
        return function(*values)
    return tuple(each(function, *parts) for parts in zip(*values, strict=True))


def is_inexact(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in INEXACT


def widened(value: Any) -> Any:
    if not is_inexact(value):
        return value
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def is_exact(made: Any, exact: Any) -> bool:
    return not is_inexact(made) or bool(np.all(unrounded(made, exact)))


def unrounded(made: Any, exact: Any) -> Any:
    """Which numbers of a result are as the op defines them, for all that one can see."""
    if made.dtype.itemsize < exact.dtype.itemsize:
        return made.astype(exact.dtype) == exact
    scaled = np.ldexp(np.stack([made.real, made.imag]), 20)  # f64 has no wider one to compare with
    return np.all((scaled == np.rint(scaled)) & (np.abs(scaled) < 2.0**52), axis=0)


def agree(made: list[Any], want: list[Any], again: Interpret) -> bool:
    """Are the results those of the reference, up to what interpretations that round at random
    differ by?  `again` makes such results, by number."""
    wanted = [numbers(array) for array in want]
    wrong = [differs(numbers(got), array) for got, array in zip(made, wanted, strict=True)]
    if not any(map(np.any, wrong)):
        return True
    moved = [np.zeros(array.shape) for array in wanted]
    for seed in range(TIMES):
        for k, other in enumerate(again(seed)):
            moved[k] = np.fmax(moved[k], distance(numbers(other), wanted[k]))
    rows = zip(made, wanted, wrong, moved, strict=True)
    return all(np.all(~bad | explained(numbers(got), b, far)) for got, b, bad, far in rows)


def numbers(array: Any) -> Any:
    """The array; of floats in a dtype that holds them all."""
    array = np.asarray(array)
    return array.astype(np.complex128) if array.dtype in INEXACT else array


def differs(got: Any, want: Any) -> Any:
    if want.dtype.kind != "c":
        return got != want
    near = np.abs(got - want) <= SMALL * np.abs(want)
    return ~(near | (got == want) | (np.isnan(got) & np.isnan(want)))


def distance(other: Any, want: Any) -> Any:
    """How far another result is from this one: infinitely where one is no number."""
    if want.dtype.kind != "c":
        return np.where(other != want, np.inf, 0)
    same = (other == want) | (np.isnan(other) & np.isnan(want))
    far = np.abs(other - want)
    return np.where(same, 0, np.where(np.isnan(far), np.inf, far))


def explained(got: Any, want: Any, moved: Any) -> Any:
    """Where rounding alone may have made this of that: all is possible where no digit is left."""
    lost = (moved > 0) & ~(moved < np.abs(want))
    return lost | (distance(got, want) <= ROOM * moved)
