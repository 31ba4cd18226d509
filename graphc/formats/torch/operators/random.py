"""Random numbers: drawn from a key made of the node's place, so a program gives the same in every
call, unless it is given a seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.operators.shapes import extents_of
from graphc.formats.torch.promotion import cast, default_float, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten, find
from graphc.ops.random import random
from graphc.ops.record.value import functions as f

SEED = "graphc_seed"  # the input of programs that draw anew in every call


def draws(target: str) -> bool:
    """Whether an operator draws random numbers."""
    rule = find(target)
    return rule is not None and rule.takes_call and rule.function.__module__ == __name__


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
    kind = element_of(dtype, default_float() if x is None else dtype_of(x))
    return f.astype(random.uniform(_key(call), shape, "f32"), kind)


@aten("randn", "randn_like")
def randn(size: Any = None, x: Any = None, dtype: Element | None = None, *, call: Any) -> Any:
    shape = extents_of(size) if x is None else x.shape
    kind = element_of(dtype, default_float() if x is None else dtype_of(x))
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


@aten("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor")
def normal_around(mean: Any, std: Any = 1.0, *, call: Any) -> Any:
    given = [value for value in (mean, std) if not isinstance(value, int | float)]
    shape = np.broadcast_shapes(*(value.shape for value in given))
    drawn = cast(random.normal(_key(call), shape, "f32"), dtype_of(given[0]))
    return f.add(f.multiply(drawn, std), mean)


@aten("normal.float_float")
def normal_numbers(
    mean: float, std: float, size: Any, dtype: Element | None = None, *, call: Any
) -> Any:
    drawn = random.normal(_key(call), extents_of(size), "f32") * std + mean
    return f.astype(drawn, element_of(dtype, default_float()))


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


def _features(x: Any) -> tuple[Any, ...]:
    """The shape of what whole feature maps of an array share."""
    return (*x.shape[:2], *[1] * (x.ndim - 2))


@aten("feature_dropout")
def feature_dropout(x: Any, p: float = 0.5, train: bool = False, *, call: Any) -> Any:
    if not train or not p:
        return x
    kept = native_dropout(f.ones(_features(x), x.dtype), p, True, call=call)[0]
    return f.multiply(x, kept)


def _alpha(x: Any, p: float, shape: Any, call: Any) -> Any:
    """What is dropped becomes the low end of SELU; mean and spread are kept."""
    kind, low = dtype_of(x), -1.7580993408473766
    kept = f.greater_equal(random.uniform(_key(call), shape, "f32"), np.float32(p))
    if p >= 1:
        return f.multiply(x, cast(0, kind))
    scale = ((low * low * p + 1) * (1 - p)) ** -0.5
    made = f.multiply(f.where(kept, x, cast(low, kind)), cast(scale, kind))
    return f.subtract(made, cast(scale * low * p, kind))


@aten("alpha_dropout")
def alpha_dropout(x: Any, p: float = 0.5, train: bool = False, *, call: Any) -> Any:
    return _alpha(x, p, x.shape, call) if train and p else x


@aten("feature_alpha_dropout")
def feature_alpha_dropout(x: Any, p: float = 0.5, train: bool = False, *, call: Any) -> Any:
    return _alpha(x, p, _features(x), call) if train and p else x


@aten("rrelu_with_noise_functional")
def rrelu_with_noise(
    x: Any, noise: Any, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, *, call: Any
) -> Any:
    """Slopes below zero are drawn in training and the middle of the range else."""
    kind = dtype_of(x)
    if not training:
        return f.leaky_relu(x, slope=(lower + upper) / 2), noise
    drawn = f.add(f.multiply(random.uniform(_key(call), x.shape, "f32"), upper - lower), lower)
    factor = f.where(f.greater(x, 0), cast(1, kind), cast(drawn, kind))
    return f.multiply(x, factor), factor


@aten("rrelu")
def rrelu(
    x: Any, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, *, call: Any
) -> Any:
    return rrelu_with_noise(x, None, lower, upper, training, call=call)[0]


@aten("exponential")
def exponential(x: Any, lambd: float = 1.0, *, call: Any) -> Any:
    drawn = random.exponential(_key(call), x.shape, "f32")
    return cast(f.divide(drawn, np.float32(lambd)), dtype_of(x))


@aten("log_normal")
def log_normal(x: Any, mean: float = 1.0, std: float = 2.0, *, call: Any) -> Any:
    drawn = random.normal(_key(call), x.shape, "f32")
    turned = f.add(f.multiply(drawn, np.float32(std)), np.float32(mean))
    return cast(f.exp(turned), dtype_of(x))


@aten("cauchy")
def cauchy(x: Any, median: float = 0.0, sigma: float = 1.0, *, call: Any) -> Any:
    turn = f.subtract(random.uniform(_key(call), x.shape, "f32"), np.float32(0.5))
    away = f.tan(f.multiply(turn, np.float32(np.pi)))
    return cast(f.add(f.multiply(away, np.float32(sigma)), np.float32(median)), dtype_of(x))


@aten("geometric")
def geometric(x: Any, p: float, *, call: Any) -> Any:
    refuse(0 < p < 1, f"a chance of {p}")
    waited = random.exponential(_key(call), x.shape, "f32")
    turns = f.ceil(f.divide(waited, np.float32(-np.log1p(-p))))
    return cast(f.maximum(turns, np.float32(1)), dtype_of(x))


@aten("multinomial")
def multinomial(x: Any, num_samples: int, replacement: bool = False, *, call: Any) -> Any:
    """Places drawn by their weights: those whose exponential times end first."""
    refuse(0 < num_samples <= x.shape[-1] or replacement, f"{num_samples} of {x.shape[-1]} places")
    weights = cast(x, np.dtype(np.float32))
    if not replacement:
        times = f.divide(random.exponential(_key(call), x.shape, "f32"), weights)
        return f.astype(f.topk(times, num_samples, axis=-1, largest=False)[1], np.int64)
    times = random.exponential(_key(call), (num_samples, *x.shape), "f32")
    return f.moveaxis(f.argmin(f.divide(times, weights), axis=-1), 0, -1)
