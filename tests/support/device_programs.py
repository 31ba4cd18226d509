"""Functions over two devices, and how they are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc as gc
from graphc.runtime.devices.multi_device import MultiDeviceExecutable

TWO = ["cpu:0", "cpu:1"]
X = np.random.default_rng(0).standard_normal((32, 32)).astype("f4")


def there_and_back(x: Any) -> Any:
    with gc.device("cpu:0"):
        y = np.tanh(x)
    with gc.device("cpu:1"):
        z = np.exp(y)
    with gc.device("cpu:0"):
        return z + y


def made(function: Any, *arguments: Any, **options: Any) -> MultiDeviceExecutable:
    options = {"devices": TWO, "threads": 1, **options}
    found = gc.compile(function, **options).executable(*arguments)
    assert isinstance(found, MultiDeviceExecutable)
    return found


def ping_pong(x: Any, turns: int = 200) -> Any:
    def body(k: Any, value: Any) -> Any:
        with gc.device("cpu:1"):
            value = np.tanh(value) + 1
        with gc.device("cpu:0"):
            return value * 0.5

    return gc.fori(0, turns, body, x)


def loop(x: Any, y: Any, trips: int = 5) -> Any:
    def body(s: Any) -> Any:
        i, a, b = s
        a = np.tanh(a + b)
        return i + 1, a, b * 0.5 + a * x

    _, a, b = gc.while_loop(lambda s: s[0] < trips, body, (0, x, y))
    return a + b, np.exp(a)


def branch(x: Any, y: Any) -> Any:
    def then(x: Any, y: Any) -> Any:
        return np.tanh(x) + y, x

    a, b = gc.cond(x.sum() > 0, then, lambda x, y: (x * y, y + 1), x, y)
    return a * b, a
