"""Loops as a user of Numba would write them, for the cases of the sweep that name one."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np


def axpy(x, y):
    result = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[1]):
            result[i, j] = np.float32(2.5) * x[i, j] + y[i, j]
    return result


def polynomial(x):
    c = np.array([0.2, 0.3, 0.4, 0.5, 0.6], np.float32)
    result = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[1]):
            value = np.float32(0.1)
            for k in range(5):
                value = value * x[i, j] + c[k]
            result[i, j] = value
    return result


def norm_of_two(x, y):
    result = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[1]):
            result[i, j] = math.sqrt(x[i, j] * x[i, j] + y[i, j] * y[i, j])
    return result


def total(x):
    result = np.float32(0)
    for i in numba.prange(x.shape[0]):
        row = np.float32(0)
        for j in range(x.shape[1]):
            row += x[i, j]
        result += row
    return result


def bincount(x):
    counts = np.zeros((4, 256), np.int64)
    for i in range(0, len(x) - 3, 4):
        for k in range(4):
            counts[k, x[i + k]] += 1
    for i in range(len(x) // 4 * 4, len(x)):
        counts[0, x[i]] += 1
    return counts[0] + counts[1] + counts[2] + counts[3]


def distances(x, y):
    result = np.empty((len(x), len(y)), np.float32)
    for i in numba.prange(len(x)):
        for j in range(len(y)):
            squares = np.float32(0)
            for k in range(x.shape[1]):
                gap = x[i, k] - y[j, k]
                squares += gap * gap
            result[i, j] = math.sqrt(squares)
    return result


FUNCTIONS = {f.__name__: f for f in (axpy, polynomial, norm_of_two, total, bincount, distances)}


def compiled(name: str, threads: int) -> Any:
    return numba.njit(FUNCTIONS[name], fastmath=True, parallel=threads > 1)
