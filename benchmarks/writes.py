"""Writes into arrays: what `x[i, j] = v` costs, beside NumPy, and JAX and torch if installed.

    python -m benchmarks.writes

`update-loop` makes 2,000 writes into an array of 1,000 x 1,000 floats in one call, `kv-cache` one
write into a donated cache, `add-at` adds 1,000 numbers at positions of a million.  Times are the
best of many calls; `fresh` calls copy their argument once, as nothing was donated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import graphc as gc

WRITES, EXTENT, CALLS = 2000, 1000, 20
ROW = np.ones(EXTENT, np.float32)
CACHE = (1, 16, 4096, 64)


def element(d: Any, k: Any) -> None:
    d[k % EXTENT, (7 * k) % EXTENT] = 1


def column(d: Any, k: Any) -> None:
    d[:, k % EXTENT] = ROW


def part_of_row(d: Any, k: Any) -> None:
    d[k % EXTENT, 10:20] = k


def plus(d: Any, k: Any) -> None:
    d[k % EXTENT, (7 * k) % EXTENT] += 1


def row_plus(d: Any, k: Any) -> None:
    d[k % EXTENT] += ROW


def add_at(d: Any, k: Any) -> None:
    np.add.at(d, (np.array([1, 5, 1]), k % EXTENT), 1.0)


def transposed(d: Any, k: Any) -> None:
    d.T[k % EXTENT, (7 * k) % EXTENT] = 1


def through_a_row(d: Any, k: Any) -> None:
    row = d[k % EXTENT]
    row[(7 * k) % EXTENT] = 1


FORMS = (element, column, part_of_row, plus, row_plus, add_at, transposed, through_a_row)


def best(call: Callable[[Any], Any], state: Any) -> float:
    """Microseconds of the fastest call; each goes on from the result of the last one."""
    state, fastest = call(call(state)), float("inf")
    for _ in range(CALLS):
        started = time.perf_counter()
        state = call(state)
        fastest = min(fastest, time.perf_counter() - started)
    return 1e6 * fastest


def show(name: str, **times: float) -> None:
    print(f"{name:28s}" + "".join(f"{who:>9s} {took:11,.1f} us" for who, took in times.items()))


# -- graphc and NumPy -----------------------------------------------------------------------------


def looped(put: Callable[[Any, Any], None], d: Any) -> Any:
    def step(k: Any, d: Any) -> Any:
        put(d, k)
        return d

    return gc.fori(0, WRITES, step, d)


def in_numpy(put: Callable[[Any, Any], None], d: Any) -> Any:
    for k in range(WRITES):
        put(d, k)
    return d


def update_loops() -> None:
    for put in FORMS:
        d = np.zeros((EXTENT, EXTENT), np.float32)
        function = partial(looped, put)
        show(
            f"update-loop {put.__name__}",
            fresh=best(gc.compile(lambda d, f=function: f(d)), d),
            donated=best(gc.compile(lambda d, f=function: f(d), donate="d"), d.copy()),
            numpy=best(partial(in_numpy, put), d.copy()),
        )


def rows_from_rows(d: Any) -> Any:
    def step(d: Any, k: Any) -> Any:
        d[k] = 0.5 * d[k - 1] + 1
        return d, None

    return gc.scan(step, d, np.arange(EXTENT))[0]


def fill_rows() -> None:
    d = np.zeros((EXTENT, EXTENT), np.float32)
    donated = gc.compile(rows_from_rows, donate="d")
    show("fill-rows", fresh=best(gc.compile(rows_from_rows), d), donated=best(donated, d.copy()))


def write(cache: Any, row: Any, position: Any) -> Any:
    cache[:, :, position] = row
    return cache


def key_value_cache() -> None:
    for dtype in (np.float32, np.float16):
        cache, row = np.zeros(CACHE, dtype), np.ones((*CACHE[:2], CACHE[3]), dtype)
        times = {
            name: best(lambda c, call=call, row=row: call(c, row, 7), cache.copy())
            for name, call in (("donated", gc.compile(write, donate="cache")), ("numpy", write))
        }
        show(f"kv-cache {np.dtype(dtype).name}", **times, **cache_of_others(cache, row))
    variable = gc.Variable(np.zeros(CACHE, np.float32), name="cache")

    @gc.compile
    def store(row: Any, position: Any) -> None:
        cache = variable.value
        cache[:, :, position] = row
        variable.assign(cache)

    row = np.ones((*CACHE[:2], CACHE[3]), np.float32)
    show("kv-cache variable", variable=best(lambda _: store(row, 7), None))


def add_at_many() -> None:
    x, index = np.zeros(10**6), np.random.default_rng(0).integers(0, 10**6, 1000)

    def add(x: Any, index: Any) -> Any:
        np.add.at(x, index, 1.0)
        return x

    fresh, donated = gc.compile(add), gc.compile(add, donate="x")
    show(
        "add-at",
        fresh=best(lambda x: fresh(x, index), x),
        donated=best(lambda x: donated(x, index), x.copy()),
        numpy=best(lambda x: add(x, index), x.copy()),
    )


# -- others ---------------------------------------------------------------------------------------


def cache_of_others(cache: np.ndarray, row: np.ndarray) -> dict[str, float]:
    """The same write by what else is installed."""
    made = {}
    if find_spec("jax"):
        import jax

        set_row = jax.jit(lambda c, row, k: c.at[:, :, k].set(row), donate_argnums=0)
        one = jax.device_put(row)
        made["jax"] = best(
            lambda c: jax.block_until_ready(set_row(c, one, 7)), jax.device_put(cache)
        )
    if find_spec("torch"):
        import torch

        made["torch"] = best(
            partial(write, row=torch.from_numpy(row), position=7), torch.tensor(cache)
        )
    return made


def jax_loop() -> None:
    if not find_spec("jax"):
        return
    import jax
    import jax.numpy as jnp

    def step(k: Any, d: Any) -> Any:
        return d.at[k % EXTENT, (7 * k) % EXTENT].set(1)

    run = jax.jit(lambda d: jax.lax.fori_loop(0, WRITES, step, d), donate_argnums=0)
    d = jnp.zeros((EXTENT, EXTENT), jnp.float32)
    show("update-loop element in JAX", jax=best(lambda d: jax.block_until_ready(run(d)), d))


if __name__ == "__main__":
    update_loops()
    jax_loop()
    fill_rows()
    key_value_cache()
    add_at_many()
