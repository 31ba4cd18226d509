"""Random functions, written once for graphc and once for PyTorch from the same description.

A description is a list of steps over a growing pool of values.  Shapes, and whether a value lies in
the domain of an op and off its kinks, are known while it is drawn: PyTorch computes along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import graphc as gc

Choose = Callable[[Sequence[Any]], Any]
Function = Callable[..., Any]
Tensor = Any

EXTENTS = (3, 2, 1, 4, 5, 0, 7)
LARGEST = 400  # elements of a value
FAR = 30.0  # the largest magnitude of a value


@dataclass
class Step:
    """One op on values of the pool, in both libraries."""

    name: str
    operands: tuple[int, ...]
    graphc: Function
    torch: Function
    shape: tuple[int, ...]


class Out(Exception):
    """This op has nothing to work on here."""


def need(condition: object) -> None:
    if not condition:
        raise Out


def constant(shape: Sequence[int], shift: float = 0.3) -> Any:
    """A fixed array of values of both signs in [-1, 1]."""
    count = math.prod(shape)
    return np.sin(np.arange(count) * 1.7 + shift).reshape(tuple(shape))


def lies(x: Tensor, low: float, high: float) -> bool:
    return not x.numel() or (float(x.min()) > low and float(x.max()) < high)


def apart(x: Tensor) -> bool:
    """No two elements are equal or nearly so."""
    return x.numel() < 2 or float(torch.diff(torch.sort(x.reshape(-1))[0]).min()) > 1e-4


def away(x: Tensor, *kinks: float) -> bool:
    return all(not x.numel() or float((x - k).abs().min()) > 1e-3 for k in kinks)


class Drawing:
    """A pool of PyTorch values and the steps that made them."""

    def __init__(self, choose: Choose, inputs: Sequence[Tensor]) -> None:
        self.choose = choose
        self.inputs = len(inputs)
        self.values = list(inputs)
        self.steps: list[Step] = []

    def pick(self, fits: Callable[[Tensor], bool] = lambda x: True) -> int:
        """A value that fits; the latest are likelier."""
        found = [k for k in range(len(self.values)) if fits(self.values[k])]
        need(found)
        return int(self.choose(found[::-1] + found[-2:]))

    def add(
        self, name: str, operands: Sequence[int], by_graphc: Function, by_torch: Function
    ) -> None:
        made = by_torch(*(self.values[k] for k in operands))
        need(made.dtype == torch.float64 and made.numel() <= LARGEST and made.dim() <= 5)
        need(not made.numel() or (bool(torch.isfinite(made).all()) and lies(made, -FAR, FAR)))
        self.values.append(made)
        self.steps.append(Step(name, tuple(operands), by_graphc, by_torch, tuple(made.shape)))

    def axis(self, x: Tensor) -> int:
        need(x.dim())
        return int(self.choose(range(-x.dim(), x.dim())))

    def axes(self, x: Tensor) -> tuple[int, ...]:
        """Some axes; none or all of them too."""
        return tuple(k for k in range(x.dim()) if self.choose((True, False)))


# -------------------------------------------------------------------------------------- elementwise

ANY = (-FAR, FAR)
MILD = (-3.0, 3.0)
POSITIVE = (0.05, FAR)
INSIDE = (-0.95, 0.95)
BELOW = (-1.3, 1.3)

# name: domain, kinks, graphc, torch
UNARY: dict[str, tuple[tuple[float, float], tuple[float, ...], Function, Function]] = {
    "sin": (ANY, (), np.sin, torch.sin),
    "cos": (ANY, (), np.cos, torch.cos),
    "tan": (BELOW, (), np.tan, torch.tan),
    "tanh": (ANY, (), np.tanh, torch.tanh),
    "exp": (MILD, (), np.exp, torch.exp),
    "exp2": (MILD, (), np.exp2, torch.exp2),
    "expm1": (MILD, (), np.expm1, torch.expm1),
    "log": (POSITIVE, (), np.log, torch.log),
    "log2": (POSITIVE, (), np.log2, torch.log2),
    "log10": (POSITIVE, (), np.log10, torch.log10),
    "log1p": ((-0.9, FAR), (), np.log1p, torch.log1p),
    "sqrt": (POSITIVE, (), np.sqrt, torch.sqrt),
    "rsqrt": (POSITIVE, (), gc.rsqrt, torch.rsqrt),
    "cbrt": (POSITIVE, (), np.cbrt, lambda x: x ** (1 / 3)),
    "square": (ANY, (), np.square, torch.square),
    "reciprocal": (POSITIVE, (), np.reciprocal, torch.reciprocal),
    "sinh": (MILD, (), np.sinh, torch.sinh),
    "cosh": (MILD, (), np.cosh, torch.cosh),
    "arcsin": (INSIDE, (), np.arcsin, torch.arcsin),
    "arccos": (INSIDE, (), np.arccos, torch.arccos),
    "arctan": (ANY, (), np.arctan, torch.arctan),
    "arcsinh": (ANY, (), np.arcsinh, torch.arcsinh),
    "arccosh": ((1.1, FAR), (), np.arccosh, torch.arccosh),
    "arctanh": (INSIDE, (), np.arctanh, torch.arctanh),
    "sigmoid": (ANY, (), gc.sigmoid, torch.sigmoid),
    "log_sigmoid": (ANY, (), gc.log_sigmoid, F.logsigmoid),
    "softplus": ((-15, 15), (), gc.softplus, F.softplus),
    "softsign": (ANY, (0,), gc.softsign, F.softsign),
    "gelu": (ANY, (), gc.gelu, F.gelu),
    "gelu tanh": (
        ANY,
        (),
        lambda x: gc.gelu(x, tanh=True),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "silu": (ANY, (), gc.silu, F.silu),
    "mish": (ANY, (), gc.mish, F.mish),
    "erf": (ANY, (), gc.erf, torch.erf),
    "erfc": (MILD, (), gc.erfc, torch.erfc),
    "erfinv": (INSIDE, (), gc.erfinv, torch.erfinv),
    "lgamma": (POSITIVE, (), gc.lgamma, torch.lgamma),
    "sinc": (MILD, (0,), np.sinc, torch.sinc),
    "abs": (ANY, (0,), abs, torch.abs),
    "relu": (ANY, (0,), gc.relu, torch.relu),
    "relu6": (ANY, (0, 6), gc.relu6, F.relu6),
    "leaky_relu": (ANY, (0,), lambda x: gc.leaky_relu(x, slope=0.01), F.leaky_relu),
    "elu": (ANY, (0,), gc.elu, F.elu),
    "selu": (ANY, (0,), gc.selu, F.selu),
    "celu": (ANY, (0,), lambda x: gc.celu(x, alpha=1.5), lambda x: F.celu(x, 1.5)),
    "hard_sigmoid": (ANY, (-3, 3), gc.hard_sigmoid, lambda x: (x / 6 + 0.5).clamp(0, 1)),
    "hard_silu": (ANY, (-3, 3), gc.hard_silu, lambda x: x * (x / 6 + 0.5).clamp(0, 1)),
    "sign": (ANY, (0,), np.sign, torch.sign),
    "floor": ((-0.9, 0.9), (0,), lambda x: np.floor(x) + x, lambda x: torch.floor(x) + x),
    "negative": (ANY, (), lambda x: -x, lambda x: -x),
    "clip": (ANY, (-0.5, 0.9), lambda x: np.clip(x, -0.5, 0.9), lambda x: x.clamp(-0.5, 0.9)),
    "nan_to_num": (ANY, (), np.nan_to_num, torch.nan_to_num),
    "cube": (ANY, (), lambda x: x**3, lambda x: x**3),
    "root": (POSITIVE, (), lambda x: x**0.5, lambda x: x**0.5),
    "inverse": (POSITIVE, (), lambda x: x**-2, lambda x: x**-2),
    "exponent": (MILD, (), lambda x: 1.5**x, lambda x: 1.5**x),
    "one less": (ANY, (), lambda x: 1 - x / 2, lambda x: 1 - x / 2),
    "over": (POSITIVE, (), lambda x: 2 / x, lambda x: 2 / x),
    "stopped": (ANY, (), gc.stop_gradient, lambda x: x.detach()),
    "half stopped": (ANY, (), lambda x: x * gc.stop_gradient(x), lambda x: x * x.detach()),
    "radians": (ANY, (), lambda x: np.deg2rad(x) * 20, lambda x: torch.deg2rad(x) * 20),
    "complex": (
        BELOW,
        (),
        lambda x: abs(np.exp(1j * x + x)) + np.real((x + 2j) ** 2) * 0.1,
        lambda x: (1j * x + x).exp().abs() + ((x + 2j) ** 2).real * 0.1,
    ),
}


def unary(d: Drawing) -> None:
    name = d.choose(list(UNARY))
    (low, high), kinks, by_graphc, by_torch = UNARY[name]
    k = d.pick(lambda x: lies(x, low, high) and away(x, *kinks))
    d.add(name, (k,), by_graphc, by_torch)


def positive(d: Drawing) -> None:
    """Something that logarithms, roots and divisions can use."""
    k = d.pick()
    d.add("positive", (k,), lambda x: x * x + 0.5, lambda x: x * x + 0.5)


def scaled(d: Drawing) -> None:
    """Something small again."""
    k = d.pick()
    d.add("scaled", (k,), lambda x: np.tanh(x) * 0.9, lambda x: torch.tanh(x) * 0.9)


def near(x: Tensor, y: Tensor) -> bool:
    return bool(x.numel() and y.numel()) and not away(x - y, 0)


def off_integers(x: Tensor, y: Tensor) -> bool:
    quotient = x / y
    return away(quotient - torch.round(quotient), 0, 0.5, -0.5)


def pair(values: Sequence[Any]) -> tuple[Any, Any]:
    x, y = values
    return x, y


# name: what it needs, graphc, torch
BINARY: dict[str, tuple[Callable[[Tensor, Tensor], bool], Function, Function]] = {
    "add": (lambda x, y: True, lambda x, y: x + y, lambda x, y: x + y),
    "subtract": (lambda x, y: True, lambda x, y: x - y, lambda x, y: x - y),
    "multiply": (lambda x, y: True, lambda x, y: x * y, lambda x, y: x * y),
    "divide": (lambda x, y: away(y, -0.1, 0, 0.1), lambda x, y: x / y, lambda x, y: x / y),
    "maximum": (lambda x, y: not near(x, y), np.maximum, torch.maximum),
    "minimum": (lambda x, y: not near(x, y), np.minimum, torch.minimum),
    "fmax": (lambda x, y: not near(x, y), np.fmax, torch.fmax),
    "power": (lambda x, y: lies(x, 0.1, 5) and lies(y, -3, 3), np.power, torch.pow),
    "arctan2": (lambda x, y: away(x, 0) and away(y, 0), np.arctan2, torch.arctan2),
    "hypot": (lambda x, y: away(x, 0) and away(y, 0), np.hypot, torch.hypot),
    "logaddexp": (lambda x, y: True, np.logaddexp, torch.logaddexp),
    "logaddexp2": (lambda x, y: True, np.logaddexp2, torch.logaddexp2),
    "copysign": (lambda x, y: away(x, 0) and away(y, 0), np.copysign, torch.copysign),
    "remainder": (lambda x, y: away(y, 0) and off_integers(x, y), np.remainder, torch.remainder),
    "fmod": (lambda x, y: away(y, 0) and off_integers(x, y), np.fmod, torch.fmod),
    "huber": (
        lambda x, y: not near(abs(x - y), torch.ones((), dtype=x.dtype)),
        lambda x, y: gc.huber(*pair(np.broadcast_arrays(x, y)), reduction="none"),
        lambda x, y: F.huber_loss(*pair(torch.broadcast_tensors(x, y)), reduction="none"),
    ),
    "bce": (
        lambda x, y: True,
        lambda x, y: gc.binary_cross_entropy_with_logits(
            *pair(np.broadcast_arrays(x, gc.sigmoid(y))), reduction="sum"
        ),
        lambda x, y: F.binary_cross_entropy_with_logits(
            *pair(torch.broadcast_tensors(x, torch.sigmoid(y))), reduction="sum"
        ),
    ),
}


def broadcastable(x: Tensor, y: Tensor) -> bool:
    pairs = zip(x.shape[::-1], y.shape[::-1])
    return all(a == b or 1 in (a, b) for a, b in pairs)


def binary(d: Drawing) -> None:
    name = d.choose(list(BINARY))
    fits, by_graphc, by_torch = BINARY[name]
    first = d.pick()
    x = d.values[first]
    second = d.pick(lambda y: broadcastable(x, y) and fits(*torch.broadcast_tensors(x, y)))
    d.add(name, (first, second), by_graphc, by_torch)


def where(d: Drawing) -> None:
    """A choice per element by a comparison of values or with a number."""
    first = d.pick()
    x = d.values[first]
    second = d.pick(lambda y: broadcastable(x, y))
    y = d.values[second]
    wide = torch.broadcast_tensors(x, y)[0]
    third = d.pick(lambda z: broadcastable(wide, z))
    if d.choose((True, False)):
        need(away(x, 0.1))
        d.add(
            "where",
            (first, second, third),
            lambda x, y, z: np.where(x > 0.1, y, z),
            lambda x, y, z: torch.where(x > 0.1, y, z),
        )
    else:
        need(not near(x, y))
        d.add(
            "where less",
            (first, second, third),
            lambda x, y, z: np.where(x < y, z, 0.5),
            lambda x, y, z: torch.where(x < y, z, 0.5),
        )


# ---------------------------------------------------------------------------------------- movements


CUTS = (
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    slice(-2, None),
    slice(None, None, 2),
    slice(5, 0, -2),
    slice(0, 0),
)


def movements(d: Drawing, x: Tensor) -> Iterator[tuple[str, Function]]:
    """Functions of NumPy that only move elements or write zeros."""
    shape, rank, choose = tuple(x.shape), x.dim(), d.choose
    total = x.numel()
    order = list(range(rank))
    for k in range(rank):
        order.insert(choose(range(k + 1)), order.pop(k))
    yield "transpose", lambda a: np.transpose(a, order)
    yield "ravel", lambda a: a.reshape(-1)
    yield "column order", lambda a: np.reshape(a, -1, order="F")
    parts = [n for n in range(1, total + 1) if total % n == 0] or [1]
    rows = choose(parts)
    yield "reshape", lambda a: a.reshape(rows, total // rows)
    cuts = tuple(choose(CUTS) for _ in shape)
    yield "slice", lambda a: a[cuts]
    yield "new axes", lambda a: a[None, ..., None]
    yield "repeat", lambda a: np.repeat(a, 2, None if not rank else choose_axis)
    choose_axis = choose(range(rank)) if rank else 0
    yield "tile", lambda a: np.tile(a, (2,) * max(rank, 1))
    yield "squeeze", np.squeeze
    yield "broadcast", lambda a: np.broadcast_to(a, (2, *shape))
    yield "pad", lambda a: np.pad(a, 1)
    if rank:
        need(shape[choose_axis])
        count = shape[choose_axis]
        numbers = np.array([choose(range(-count, count)) for _ in range(choose((3, 1, 0, 6)))], int)
        yield "take", lambda a: np.take(a, numbers, choose_axis)
        yield "table", lambda a: np.take(a, numbers.reshape(1, -1), choose_axis)
        yield "one", lambda a: np.take(a, count - 1, choose_axis)
        yield "flip", lambda a: np.flip(a, choose_axis)
        yield "roll", lambda a: np.roll(a, -2, choose_axis)
        yield "rows", lambda a: a[numbers % shape[0]]
        yield "move", lambda a: np.moveaxis(a, choose_axis, 0)
        yield "split", lambda a: np.array_split(a, 2, choose_axis)[0]
        yield "edge", lambda a: np.pad(a, 1, "edge") if total else a
        yield "wrap", lambda a: np.pad(a, 2, "wrap") if total else a
        yield "reflect", lambda a: np.pad(a, 2, "reflect") if total else a
        yield "delete", lambda a: np.delete(a, 0, choose_axis)
        yield "mask", lambda a: a[constant(shape) > 0]
        yield "put", lambda a: np.where(constant(shape) > 0, a, 0)
    if rank > 1:
        yield "swap", lambda a: a.swapaxes(0, -1)
        yield "tril", lambda a: np.tril(a, -1)
        yield "triu", lambda a: np.triu(a)
        yield "diagonal", lambda a: np.diagonal(a, 1)
        yield "rot90", np.rot90
    if rank > 1 and total:
        yield "pairs", lambda a: a[np.arange(3) % shape[0], ..., np.arange(3) % shape[-1]]


def movement(d: Drawing) -> None:
    k = d.pick()
    x = d.values[k]
    name, function = d.choose(list(movements(d, x)))
    numbers = np.arange(1, x.numel() + 1).reshape(tuple(x.shape))
    places = torch.from_numpy(np.array(function(numbers)))

    def by_torch(x: Tensor) -> Tensor:
        return torch.cat([x.new_zeros(1), x.reshape(-1)])[places]

    d.add(name, (k,), function, by_torch)


def joined(d: Drawing) -> None:
    """concatenate and stack, also of a value with itself."""
    first = d.pick(lambda x: x.dim() > 0)
    x = d.values[first]
    axis = d.axis(x)
    if d.choose((True, False)):
        second = d.pick(lambda y: y.shape == x.shape)
        d.add(
            "stack",
            (first, second, first),
            lambda *a: np.stack(a, axis),
            lambda *a: torch.stack(a, axis),
        )
        return
    place = axis % x.dim()

    def fits(y: Tensor) -> bool:
        return y.dim() == x.dim() and all(
            a == b for k, (a, b) in enumerate(zip(x.shape, y.shape)) if k != place
        )

    second = d.pick(fits)
    d.add(
        "concatenate",
        (first, second),
        lambda *a: np.concatenate(a, axis),
        lambda *a: torch.cat(a, axis),
    )
