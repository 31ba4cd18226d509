"""Random steps that fold, sort, scatter and contract values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_ops import Drawing, Function, Tensor, apart, constant, need

import graphc as gc

# ----------------------------------------------------------------------------------------- folding

Fold = Callable[[Any, Any, bool], Any]


def variance(x: Tensor, axes: Any, keep: bool) -> Tensor:
    return torch.var(x, axes, correction=0, keepdim=keep)


def product(x: Tensor, axes: Any, keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


FOLDS: dict[str, tuple[Fold, Fold]] = {
    "sum": (lambda x, a, k: np.sum(x, a, keepdims=k), lambda x, a, k: torch.sum(x, a, k)),
    "mean": (lambda x, a, k: np.mean(x, a, keepdims=k), lambda x, a, k: torch.mean(x, a, k)),
    "prod": (lambda x, a, k: np.prod(x, a, keepdims=k), product),
    "max": (lambda x, a, k: np.max(x, a, keepdims=k), torch.amax),
    "min": (lambda x, a, k: np.min(x, a, keepdims=k), torch.amin),
    "var": (lambda x, a, k: np.var(x, a, keepdims=k), variance),
    "std": (
        lambda x, a, k: np.sqrt(np.var(x, a, keepdims=k) + 0.1),
        lambda x, a, k: torch.sqrt(variance(x, a, k) + 0.1),
    ),
    "logsumexp": (gc.logsumexp, torch.logsumexp),
    "norm": (
        lambda x, a, k: np.sqrt(np.sum(x * x + 0.1, a, keepdims=k)),
        lambda x, a, k: torch.linalg.vector_norm(torch.sqrt(x * x + 0.1), 2, a, k),
    ),
}


def fold(d: Drawing) -> None:
    name = d.choose(list(FOLDS))
    by_graphc, by_torch = FOLDS[name]
    k = d.pick(lambda x: x.dim() > 0 and (name in ("sum", "prod") or x.numel() > 0))
    x = d.values[k]
    need(name not in ("max", "min") or apart(x))
    axes, keep = d.axes(x), d.choose((False, True))
    need(axes)  # () means all axes in PyTorch
    d.add(
        f"{name}{axes}", (k,), lambda x: by_graphc(x, axes, keep), lambda x: by_torch(x, axes, keep)
    )


def backwards(function: Function, axis: int) -> Function:
    return lambda x: function(x.flip(axis), axis).flip(axis)


def running(d: Drawing) -> None:
    k = d.pick(lambda x: x.dim() > 0)
    x = d.values[k]
    axis, reverse = d.axis(x), d.choose((False, True))
    tests: dict[str, tuple[Function, Function]] = {
        "cumsum": (gc.cumsum, torch.cumsum),
        "cumprod": (gc.cumprod, torch.cumprod),
        "cummax": (gc.cummax, lambda x, a: torch.cummax(x, a)[0]),
        "cummin": (gc.cummin, lambda x, a: torch.cummin(x, a)[0]),
    }
    name = d.choose(list(tests))
    need(apart(x) and (x.numel() or "cumm" not in name))
    by_graphc, by_torch = tests[name]
    if reverse:
        d.add(
            f"{name} back",
            (k,),
            lambda x: by_graphc(x, axis, reverse=True),
            backwards(by_torch, axis),
        )
    else:
        d.add(name, (k,), lambda x: by_graphc(x, axis), lambda x: by_torch(x, axis))


def ordered(d: Drawing) -> None:
    k = d.pick(lambda x: x.dim() > 0 and x.numel() > 0 and apart(x))
    axis = d.axis(d.values[k])
    extent = d.values[k].shape[axis]
    some = d.choose(range(1, extent + 1))
    tests: dict[str, tuple[Function, Function]] = {
        "sort": (lambda x: np.sort(x, axis), lambda x: torch.sort(x, axis)[0]),
        "sort down": (
            lambda x: gc.sort(x, axis, descending=True),
            lambda x: torch.sort(x, axis, descending=True)[0],
        ),
        "topk": (lambda x: gc.topk(x, some, axis)[0], lambda x: torch.topk(x, some, axis)[0]),
        "by order": (
            lambda x: np.take_along_axis(x * x, np.argsort(x, axis), axis),
            lambda x: torch.take_along_dim(x * x, torch.argsort(x, axis), axis),
        ),
        "at the most": (
            lambda x: np.take(x, np.argmax(x.reshape(x.shape[0], -1)[:, 0]), 0),
            lambda x: x[int(torch.argmax(x.reshape(x.shape[0], -1)[:, 0]))],
        ),
        "quantile": (lambda x: np.quantile(x, 0.3, axis), lambda x: torch.quantile(x, 0.3, axis)),
        "median": (lambda x: np.median(x, axis), lambda x: torch.quantile(x, 0.5, axis)),
    }
    name = d.choose(list(tests))
    d.add(name, (k,), *tests[name])


# ------------------------------------------------------------------------------------------ writing


def written(d: Drawing) -> None:
    """Rows of a value set, added to and multiplied by part of another."""
    first = d.pick(lambda x: x.dim() > 0 and x.numel() > 0)
    x = d.values[first]
    rows = x.shape[0]
    second = d.pick(lambda y: y.dim() >= x.dim() and y.numel() > 0 and y.shape[1:] == x.shape[1:])
    count = d.values[second].shape[0]
    places = np.array([d.choose(range(rows)) for _ in range(count)])
    numbers = torch.from_numpy(places)
    unique = len(set(places.tolist())) == count
    mode = d.choose(("add", "set", "mul", "slice", "method"))
    need(mode in ("add", "slice") or unique)

    def assigned(x: Any, y: Any) -> Any:
        x = x * 1
        x[places] = y
        x[:1] += y[-1]
        return x

    def assigned_torch(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        x[numbers] = y
        x[:1] += y[-1]
        return x

    tests: dict[str, tuple[Function, Function]] = {
        "add": (
            lambda x, y: gc.index_update(x, places, y, "add"),
            lambda x, y: x.index_add(0, numbers, y),
        ),
        "set": (
            lambda x, y: gc.index_update(x, places, y),
            lambda x, y: x.index_copy(0, numbers, y),
        ),
        "mul": (
            lambda x, y: gc.index_update(x, places, y, "mul"),
            lambda x, y: x.index_copy(0, numbers, x[numbers] * y),
        ),
        "slice": (
            lambda x, y: gc.index_update(x, slice(None, None, -2), y[0]),
            lambda x, y: torch.stack(
                [y[0] if (rows - 1 - k) % 2 == 0 else x[k] for k in range(rows)]
            ),
        ),
        "method": (assigned, assigned_torch),
    }
    d.add(f"write {mode}", (first, second), *tests[mode])


def counted(d: Drawing) -> None:
    """A gather and a slice at places that depend on the data."""
    k = d.pick(lambda x: x.dim() == 2 and x.shape[0] > 1 and x.numel() > 0 and apart(x))
    rows = d.values[k].shape[0]

    def by_torch(x: Tensor) -> Tensor:
        start = min(int(torch.argmin(x[:, 0])), rows - 2)
        changed = x.clone()
        changed[start : start + 2] = x[start : start + 2] ** 2
        return changed

    def by_graphc(x: Any) -> Any:
        start = np.argmin(x[:, 0])
        part = gc.dynamic_slice(x, (start, 0), (2, x.shape[1]))
        return gc.dynamic_update_slice(x, part**2, (start, 0))

    d.add("dynamic", (k,), by_graphc, by_torch)


# ------------------------------------------------------------------------------------- contractions


def matmul(d: Drawing) -> None:
    first = d.pick(lambda x: x.dim() > 0)
    x = d.values[first]

    def fits(y: Tensor) -> bool:
        inner = y.shape[-2] if y.dim() > 1 else y.shape[0] if y.dim() else -1
        lead = x.shape[:-2], y.shape[:-2]
        return inner == x.shape[-1] and broadcastable_dims(*lead)

    if d.choose((True, False)):
        second = d.pick(fits)
        d.add("matmul", (first, second), lambda x, y: x @ y, lambda x, y: x @ y)
    elif d.choose((True, False)):
        d.add(
            "gram",
            (first,),
            lambda x: x @ np.swapaxes(np.tanh(x), -1, -2) if x.ndim > 1 else x @ x,
            lambda x: x @ torch.tanh(x).transpose(-1, -2) if x.dim() > 1 else x @ x,
        )
    else:
        weight = constant((x.shape[-1], 3))
        d.add("dense", (first,), lambda x: x @ weight, lambda x: x @ torch.from_numpy(weight))


def broadcastable_dims(first: Any, second: Any) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(first[::-1], second[::-1]))


def einsum(d: Drawing) -> None:
    """Any letters at all: repeated, summed, kept, swapped."""
    operands = [d.pick(lambda x: x.dim() < 4) for _ in range(d.choose((2, 1, 3)))]
    extents: dict[str, int] = {}
    terms = []
    for k in operands:
        term = ""
        for extent in d.values[k].shape:
            known = [c for c, n in extents.items() if n == extent]
            fresh = "abcdefghijkl"[len(extents)]
            letter = d.choose([*known, fresh])
            extents[letter] = extent
            term += letter
        terms.append(term)
    kept = [c for c in extents if d.choose((True, False))]
    output = "".join(kept if d.choose((True, False)) else kept[::-1])
    text = f"{','.join(terms)}->{output}"
    need(math.prod(extents.values()) < 20_000)
    d.add(text, operands, lambda *a: np.einsum(text, *a), lambda *a: torch.einsum(text, *a))


def linear(d: Drawing) -> None:
    """Square systems, made well-conditioned."""
    k = d.pick(lambda x: x.dim() > 1 and x.shape[-1] == x.shape[-2] and x.numel() > 0)
    size = d.values[k].shape[-1]
    unit = np.eye(size)
    eye = torch.from_numpy(unit)
    tests: dict[str, tuple[Function, Function]] = {
        "solve": (
            lambda x: np.linalg.solve(np.tanh(x) + size * unit, np.swapaxes(x, -1, -2)),
            lambda x: torch.linalg.solve(torch.tanh(x) + size * eye, x.transpose(-1, -2)),
        ),
        "inv": (
            lambda x: np.linalg.inv(np.tanh(x) + size * unit),
            lambda x: torch.linalg.inv(torch.tanh(x) + size * eye),
        ),
        "det": (
            lambda x: np.linalg.det(np.tanh(x) * 0.3 + unit),
            lambda x: torch.linalg.det(torch.tanh(x) * 0.3 + eye),
        ),
        "slogdet": (
            lambda x: np.linalg.slogdet(np.tanh(x) + size * unit)[1],
            lambda x: torch.linalg.slogdet(torch.tanh(x) + size * eye)[1],
        ),
        "cholesky": (
            lambda x: np.linalg.cholesky(np.tanh(x) @ np.swapaxes(np.tanh(x), -1, -2) + unit),
            lambda x: torch.linalg.cholesky(torch.tanh(x) @ torch.tanh(x).mT + eye),
        ),
    }
    name = d.choose(list(tests))
    d.add(name, (k,), *tests[name])
