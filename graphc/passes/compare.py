"""How far apart two arrays are, and whether that is more than rounding."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.ir.types import C128, dtype

Array = np.ndarray[Any, Any]
TOLERANCE = {"f16": 1e-2, "bf16": 5e-2, "f32": 1e-4, "c64": 1e-4, "f64": 1e-9, "c128": 1e-9}
NONE: Mapping[str, float] = MappingProxyType({})


@record(frozen=True)
class Difference:
    """The first element of an array that differs, its value and what it should be, the units in
    the last place between them (-1 where these are not counted), and how many elements differ."""

    name: str
    index: tuple[int, ...]
    value: str
    wanted: str
    ulps: int
    count: int
    size: int

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        ulps = f" ({self.ulps:,} ulps)" if self.ulps >= 0 else ""
        return (
            f"{self.name}{where} is {self.value}, should be {self.wanted}{ulps}; "
            f"{self.count:,} of {self.size:,} elements differ"
        )


def distance(mine: Array, other: Array, tolerance: float = 0.0) -> tuple[float, float]:
    """(largest difference, allowed difference); NaNs and infinities must stand at equal places.

    `tolerance` is for numbers that were rounded to a narrower type than their own.
    """
    kind = dtype(mine.dtype)
    if mine.shape != other.shape or not mine.size:
        return (0.0 if mine.shape == other.shape else np.inf), 0.0
    if kind.kind not in "fc":
        return float(np.max(mine != other)), 0.0
    wide = C128.numpy if kind.is_complex else np.float64
    a, b = mine.astype(wide), other.astype(wide)
    odd = ~(np.isfinite(a) & np.isfinite(b))
    if not np.array_equal(a[odd], b[odd], equal_nan=True):
        return np.inf, 0.0
    scale = float(np.max(np.abs(b[~odd]), initial=1.0))
    return float(np.max(np.abs(a[~odd] - b[~odd]), initial=0.0)), max(
        tolerance, TOLERANCE[kind.name]
    ) * scale


def same_bits(one: Any, other: Any) -> bool:
    """Whether two arrays, or tuples of them, have the same bits; any NaN is as good as another."""
    if isinstance(one, tuple):
        return all(map(same_bits, one, other))
    if not isinstance(one, np.ndarray):
        return True
    if dtype(one.dtype).is_complex:
        return same_bits(one.real, other.real) and same_bits(one.imag, other.imag)
    if dtype(one.dtype).kind != "f":
        return bool(np.array_equal(one, other))
    same = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool(np.all(same | np.isnan(one) & np.isnan(other)))


def difference(name: str, mine: Any, other: Any, tolerance: float = 0.0) -> Difference | None:
    """How an array differs from what it should be; None where it does not by more than rounding.

    Tuples of arrays differ where the first of their parts does.
    """
    if isinstance(mine, tuple) and isinstance(other, tuple):
        parts = (
            difference(f"{name}:{k}", *pair, tolerance) for k, pair in enumerate(zip(mine, other))
        )
        return next(filter(None, parts), None)
    if not isinstance(mine, np.ndarray) or not isinstance(other, np.ndarray):
        return None
    error, allowed = distance(mine, other, tolerance)
    if error <= allowed:
        return None
    if mine.shape != other.shape:
        texts = str(list(mine.shape)), str(list(other.shape))
        return Difference(f"the shape of {name}", (), *texts, -1, mine.size, mine.size)
    bad = _bad(mine, other, allowed)
    index = tuple(map(int, np.argwhere(bad)[0]))
    a, b = mine[index], other[index]
    return Difference(name, index, str(a), str(b), ulps(a, b), int(bad.sum()), mine.size)


def first_difference(
    made: dict[str, Any], wanted: dict[str, Any], tolerances: Mapping[str, float] = NONE
) -> Difference | None:
    """The first of several arrays that is not what it should be; `tolerances` by name."""
    names = [name for name in wanted if name in made]
    found = (difference(n, made[n], wanted[n], tolerances.get(n, 0.0)) for n in names)
    return next(filter(None, found), None)


def message_of(error: BaseException) -> str:
    """What an error says; of one that is no GraphError with its type."""
    return str(error) if isinstance(error, GraphError) else f"{type(error).__name__}: {error}"


def kind_of(message: str) -> str:
    """What stays of an error's message when the graph that it is about shrinks."""
    words = (word for word in message.split("\n", 1)[0].split() if word.strip(":,.").isalpha())
    return " ".join(words)


def _bad(mine: Array, other: Array, allowed: float) -> Array:
    """Where two arrays of one shape differ."""
    if dtype(mine.dtype).kind not in "fc":
        return np.asarray(mine != other)
    with np.errstate(all="ignore"):
        wide = np.complex128 if mine.dtype.kind == "c" else np.float64
        a, b = mine.astype(wide), other.astype(wide)
        near = (np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b))
    return np.asarray(~near)


def ulps(a: Any, b: Any) -> int:
    """How many floats lie between two real ones of one type; -1 for NaN and for what is no such."""
    kind = dtype(np.asarray(a).dtype)
    if kind.kind != "f" or np.isnan(a) or np.isnan(b):
        return -1
    bits = [int(np.asarray(x).view(f"i{kind.itemsize}")) for x in (a, b)]
    low = -(1 << (8 * kind.itemsize - 1))
    first, second = (x if x >= 0 else low - x for x in bits)
    return abs(first - second)
