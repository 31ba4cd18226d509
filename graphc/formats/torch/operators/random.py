"""Random numbers: drawn from a key made of the node's place, so a program gives the same in every
call, unless it is given a seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.operators.shapes import extents_of
from graphc.formats.torch.promotion import DEFAULT, cast, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.ops.random import random
from graphc.ops.record.value import functions as f

SEED = "graphc_seed"  # the input of programs that draw anew in every call


def _key(call: Any) -> Any:
    seed = call.scope.get(SEED)
    return (
        random.key(call.node.index)
        if seed is None
        else random.fold_in(random.key(seed), call.node.index)
    )


@aten("rand", "rand_like")
def rand(size: Any = None, x: Any = None, dtype: Element | None = None, *, call: Any) -> Any:
    shape = extents_of(size) if x is None else x.shape
    kind = element_of(dtype, DEFAULT if x is None else dtype_of(x))
    return f.astype(random.uniform(_key(call), shape, "f32"), kind)


@aten("randn", "randn_like")
def randn(size: Any = None, x: Any = None, dtype: Element | None = None, *, call: Any) -> Any:
    shape = extents_of(size) if x is None else x.shape
    kind = element_of(dtype, DEFAULT if x is None else dtype_of(x))
    return f.astype(random.normal(_key(call), shape, "f32"), kind)


@aten("randint", "randint_like")
def randint(
    high: int = 0,
    low: int = 0,
    size: Any = None,
    x: Any = None,
    dtype: Element | None = None,
    *,
    call: Any,
) -> Any:
    refuse(low < high, f"integers in {low}..{high}")
    shape = extents_of(size) if x is None else x.shape
    kind = element_of(dtype, np.dtype(np.int64) if x is None else dtype_of(x))
    return f.astype(random.randint(_key(call), shape, low, high), kind)


@aten("randperm")
def randperm(n: int, dtype: Element | None = None, *, call: Any) -> Any:
    made = random.permutation(_key(call), n)
    return f.astype(made, element_of(dtype, np.dtype(np.int64)))


@aten("bernoulli")
def bernoulli(x: Any, p: Any = None, *, call: Any) -> Any:
    drawn = random.uniform(_key(call), x.shape, "f32")
    chance = cast(x if p is None else p, np.dtype(np.float32))
    return f.astype(f.less(drawn, chance), dtype_of(x))


@aten("uniform")
def uniform(x: Any, low: float = 0.0, to: float = 1.0, *, call: Any) -> Any:
    drawn = random.uniform(_key(call), x.shape, "f32")
    return f.astype(f.add(f.multiply(drawn, np.float32(to - low)), np.float32(low)), dtype_of(x))


@aten("normal", "normal_functional")
def normal(x: Any, mean: float = 0.0, std: float = 1.0, *, call: Any) -> Any:
    drawn = random.normal(_key(call), x.shape, "f32")
    return f.astype(f.add(f.multiply(drawn, np.float32(std)), np.float32(mean)), dtype_of(x))


@aten("native_dropout")
def native_dropout(x: Any, p: float, train: bool | None = None, *, call: Any) -> Any:
    if train is False or not p:
        return x, f.ones(x.shape, bool)
    kept = f.greater_equal(random.uniform(_key(call), x.shape, "f32"), np.float32(p))
    scale = cast(1 / (1 - p) if p < 1 else 0.0, dtype_of(x))
    return f.where(kept, f.multiply(x, scale), np.zeros((), dtype_of(x))), kept


@aten("dropout")
def dropout(x: Any, p: float = 0.5, train: bool = False, *, call: Any) -> Any:
    return native_dropout(x, p, True, call=call)[0] if train and p else x


@aten("feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def other_dropout(x: Any, p: float = 0.5, train: bool = False) -> Any:
    refuse(not train or not p, "this kind of dropout in training is not supported")
    return x
