"""Random numbers: drawn from a key made of the seed, or of the node's place where there is none.

A model gives the same numbers in every call.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import number, refuse
from graphc.formats.onnx.reader import element_name
from graphc.formats.onnx.table import operator
from graphc.ops.random import random
from graphc.ops.record.value import functions as f


def _key(seed: float | None, call: Any) -> Any:
    start = call.node.index if seed is None else int(np.float32(seed).view(np.uint32))
    return random.key(start)


def _kind(dtype: int | None, default: Any) -> Any:
    return default if dtype is None else element_name(dtype)


def drop_out(x: Any, ratio: Any, training: Any, seed: int | None, call: Any) -> Any:
    share = 0.5 if ratio is None else float(number(ratio))
    if training is None or not number(training) or share == 0.0:
        return (x, f.ones_like(x, dtype=bool)) if call.wants(1) else x
    drawn = random.uniform(_key(seed, call), x.shape, "f32")
    kept = f.greater_equal(drawn, np.float32(share))
    scale = np.asarray(1 / (1 - share) if share < 1 else 0.0, x.dtype)
    return f.where(kept, f.multiply(x, scale), np.zeros((), x.dtype)), kept


@operator("RandomUniform", folds=False)
def uniform(
    *,
    shape: tuple[int, ...],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    call: Any,
) -> Any:
    kind = np.dtype(element_name(dtype))
    drawn = random.uniform(_key(seed, call), shape, "f32")
    made = f.add(f.multiply(drawn, np.float32(high - low)), np.float32(low))
    return f.astype(made, kind)


@operator("RandomUniformLike", folds=False)
def uniform_like(
    x: Any,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    call: Any,
) -> Any:
    drawn = random.uniform(_key(seed, call), x.shape, "f32")
    made = f.add(f.multiply(drawn, np.float32(high - low)), np.float32(low))
    return f.astype(made, _kind(dtype, x.dtype))


@operator("RandomNormal", folds=False)
def normal(
    *,
    shape: tuple[int, ...],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    call: Any,
) -> Any:
    drawn = random.normal(_key(seed, call), shape, "f32")
    made = f.add(f.multiply(drawn, np.float32(scale)), np.float32(mean))
    return f.astype(made, element_name(dtype))


@operator("RandomNormalLike", folds=False)
def normal_like(
    x: Any,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    call: Any,
) -> Any:
    drawn = random.normal(_key(seed, call), x.shape, "f32")
    made = f.add(f.multiply(drawn, np.float32(scale)), np.float32(mean))
    return f.astype(made, _kind(dtype, x.dtype))


@operator("Bernoulli", folds=False)
def bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None, call: Any) -> Any:
    drawn = random.uniform(_key(seed, call), x.shape, "f32")
    return f.astype(f.less(drawn, f.astype(x, np.float32)), _kind(dtype, x.dtype))


@operator("Multinomial", folds=False)
def multinomial(
    x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, call: Any
) -> Any:
    batch, classes = x.shape
    drawn = random.gumbel(_key(seed, call), (batch, sample_size, classes), "f32")
    refuse(math.prod(drawn.shape) > 0, "nothing to draw from")
    chosen = f.argmax(f.add(f.expand_dims(x, 1), drawn), axis=2)
    return f.astype(chosen, element_name(dtype))
