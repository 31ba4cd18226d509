"""What a user does with a GPU: state, sessions, donated and empty arrays, values that are none,
errors at the user's line, strict sums, and programs that share the work with the CPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from gpu_harness import GPU, need_gpu, rng, sized

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.passes.tiling import block as blocks
from graphc.runtime.cuda.interface import ALIGNMENT

need_gpu()
pytestmark = pytest.mark.gpu

WIDE = sized(12, 3000)
MIXED = ["cpu:0", "gpu:0"]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -1.5], np.float32)


def matrix(*salt: int, rows: int = 5) -> Any:
    return rng(*salt).standard_normal((rows, WIDE)).astype(np.float32)


def both(function: Any, *arrays: Any, **options: Any) -> tuple[Any, Any]:
    """The results on the GPU and on the CPU."""
    return tuple(gc.compile(function, devices=d, **options)(*arrays) for d in (GPU, ["cpu:0"]))  # type: ignore[return-value]


# ------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    "shapes", [((44, 2), (40, 2)), ((40, 2), (30, 2)), ((2, 32, 2), (2, 16, 2))]
)
@pytest.mark.parametrize("cache", [400, 1400])
def test_chains_in_blocks(monkeypatch: pytest.MonkeyPatch, shapes: Any, cache: int) -> None:
    """Base addresses move by whole vectors, beside operands that end after the last block."""
    room = blocks.Room(1, cache, 1, ALIGNMENT, ())
    monkeypatch.setattr(blocks, "room_of", lambda config: room)
    q, k, v = (rng(9, n).standard_normal(shapes[n > 0]).astype(np.float32) for n in range(3))
    step = gc.compile(chain, devices=GPU)
    assert " = blocked(" in gc.show(step.stages(q, k, v)[-1].value)
    np.testing.assert_allclose(step(q, k, v), chain(q, k, v), rtol=1e-4, atol=1e-5)


def chain(q: Any, k: Any, v: Any) -> Any:
    """Attention but for the roots: GPUs know that itself as one kernel."""
    powers = np.sqrt(np.exp(q @ np.swapaxes(k, -1, -2) * 0.25))
    return (powers / powers.sum(-1, keepdims=True)) @ v


def test_special_values_pass_through() -> None:
    def function(x: Any) -> Any:
        return np.maximum(x, 0), np.minimum(x, 1), x.max(), x.sum(), x == x, np.signbit(x), 1 / -x

    for got, want in zip(*both(function, SPECIAL), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x = np.empty(shape, np.float32)
    for got, want in zip(*both(lambda x: (x + 1, x.sum(0), x.sum(), x @ x.T), x), strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


def test_numbers_of_dtypes() -> None:
    for kind in (
        np.bool_,
        np.int8,
        np.uint8,
        np.int16,
        np.uint16,
        np.int32,
        np.uint32,
        np.int64,
        np.uint64,
    ):
        x = rng(1).integers(0, 2 if kind is np.bool_ else 120, (3, WIDE)).astype(kind)
        for got, want in zip(
            *both(lambda x: (x * x + x, x.sum(-1), x.max(0), x < x[:1], x[:, ::-1] ^ x), x)
        ):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype


def test_random_bits_are_those_of_the_cpu() -> None:
    def function(key: Any) -> Any:
        one, other = gc.random.split(key, 2)
        return gc.random.uniform(one, (3, WIDE)), gc.random.bits(other, (WIDE,))

    for got, want in zip(*both(function, gc.random.key(5)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_strict_order_of_sums_and_products() -> None:
    x = matrix(2)

    def function(x: Any) -> Any:
        return x.sum(-1), x * x + x, (x[:, None] * x).sum(-1)

    for got, want in zip(*both(function, x, fast_math=False), strict=True):
        np.testing.assert_array_equal(got, want)


# ------------------------------------------------------------------------------------ errors


def test_index_errors_name_the_line() -> None:
    x, places = matrix(3), np.array([0, 4])
    for opt in (0, 2):
        run = gc.compile(lambda x, i: (x * 2)[i] + 1, devices=GPU, opt=opt)
        np.testing.assert_array_equal(run(x, places), (x * 2)[places] + 1)
        with pytest.raises(RunError, match="out of range") as caught:
            run(x, places + 1)
        assert "test_gpu_programs.py" in str(caught.value)
        np.testing.assert_array_equal(run(x, places), (x * 2)[places] + 1)


def test_what_is_not_finite_is_named() -> None:
    run = gc.compile(lambda x: np.sqrt(x).sum(-1), devices=GPU, check_finite=True)
    x = abs(matrix(4))
    np.testing.assert_allclose(run(x), np.sqrt(x).sum(-1), rtol=1e-5)
    x[2, 3] = -1
    with pytest.raises(RunError, match="sqrt") as caught:
        run(x)
    assert "test_gpu_programs.py" in str(caught.value)


# ------------------------------------------------------------------------------------ state


def test_variables_live_on(home: Any) -> None:
    start = matrix(5)
    with gc.container(home.name):
        total, count = gc.Variable(start, name="total"), gc.Variable(np.int32(0), name="count")

    @gc.compile(devices=GPU)
    def step(x: Any) -> Any:
        total.assign_add(x * 2)
        count.assign_add(1)
        return total.value.sum(-1)

    x = matrix(6)
    for number in range(3):
        want = start + 2 * x * (number + 1)
        np.testing.assert_allclose(step(x), want.sum(-1), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(total.value, want, rtol=1e-5, atol=1e-5)
    assert count.value == 3
    total.assign(x)
    np.testing.assert_allclose(step(x), (3 * x).sum(-1), rtol=1e-4, atol=1e-4)


def test_variables_change_only_if_all_is_finite(home: Any) -> None:
    with gc.container(home.name):
        held = gc.Variable(np.ones(4, np.float32), name="held")

    @gc.compile(devices=GPU, check_finite=True)
    def step(x: Any) -> Any:
        held.assign_add(1)
        return np.log(x)

    step(np.ones(4, np.float32))
    with pytest.raises(RunError):
        step(np.zeros(4, np.float32))
    np.testing.assert_array_equal(held.value, [2, 2, 2, 2])


def test_sessions() -> None:
    session = gc.Session(devices=GPU)
    x = matrix(7)
    fetches = session.extend(gc.compile(lambda x: (np.tanh(x) * 2, x.sum(-1))).graph(x))
    y, z = session.run(fetches, {"x": x})
    np.testing.assert_allclose(y, np.tanh(x) * 2, rtol=1e-5)
    np.testing.assert_allclose(z, x.sum(-1), rtol=1e-4, atol=1e-5)


def test_donated_arguments() -> None:
    x = matrix(8)
    run = gc.compile(lambda x, y: x * 2 + y, devices=GPU, donate="x")
    for _ in range(2):
        np.testing.assert_array_equal(run(x.copy(), x), x * 2 + x)


def test_several_shapes_and_threads() -> None:
    run = gc.compile(lambda x: np.exp(x - x.max(-1, keepdims=True)).sum(-1), devices=GPU)
    inputs = [matrix(9, k, rows=1 + k % 3) for k in range(6)]
    made: dict[int, Any] = {}

    def work(k: int) -> None:
        made[k] = run(inputs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, x in enumerate(inputs):
        want = np.exp(x - x.max(-1, keepdims=True)).sum(-1)
        np.testing.assert_allclose(made[k], want, rtol=1e-5)


def test_custom_ops() -> None:
    @gc.custom_op("halved_on_gpu")
    def halved(x: Any, out: Any) -> int:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                out[i, j] = x[i, j] / 2
        return 0

    x = matrix(10)
    np.testing.assert_array_equal(gc.compile(lambda x: halved(x + 1), devices=GPU)(x), (x + 1) / 2)


# ------------------------------------------------------------------------------------ sharing


@pytest.mark.parametrize("compress", [False, True])
def test_cpu_and_gpu_share_a_program(compress: bool) -> None:
    x, w = matrix(11), matrix(12, rows=WIDE)

    def function(x: Any, w: Any) -> Any:
        with gc.device("cpu:0"):
            h = np.tanh(x)
        with gc.device("gpu:0"):
            h = h @ w
        with gc.device("cpu:0"):
            return h - h.mean(-1, keepdims=True)

    run = gc.compile(function, devices=MIXED, compress=compress)
    want = np.tanh(x.astype(np.float64)) @ w
    want -= want.mean(-1, keepdims=True)
    bound = 0.1 if compress else 1e-5
    for _ in range(2):
        np.testing.assert_allclose(run(x, w), want, rtol=bound, atol=bound * abs(want).max())


def test_placement_is_free_to_choose() -> None:
    x = matrix(13)
    made = gc.compile(lambda x: (np.sin(x) @ x.T).sum(0), devices=MIXED)(x)
    want = (np.sin(x.astype(np.float64)) @ x.T).sum(0)
    np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)


def test_errors_cross_devices() -> None:
    def function(x: Any, i: Any) -> Any:
        with gc.device("gpu:0"):
            taken = x[i]
        with gc.device("cpu:0"):
            return taken * 2

    run = gc.compile(function, devices=MIXED)
    x = matrix(14)
    np.testing.assert_array_equal(run(x, np.array([1])), x[[1]] * 2)
    with pytest.raises(GraphError, match="out of range"):
        run(x, np.array([7]))
    np.testing.assert_array_equal(run(x, np.array([2])), x[[2]] * 2)
