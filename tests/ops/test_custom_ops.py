"""Custom ops: type rules, references, and the kernel over flat arrays."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from op_harness import lowered, same, traced

import graphc as gc
from graphc.errors import RunError, TypeRuleError
from graphc.ir.types import F32, I64, tensor
from graphc.ops.control.custom import custom_op


def _smooth(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + x[max(i - 1, 0), j]


smooth = custom_op("smooth_for_test")(_smooth)


@custom_op(
    "extremes_for_test",
    infer=lambda x, y: (tensor(x.dtype), tensor(I64, y.shape)),
    reference=lambda x, y: (x.max(), y * 2),
)
def extremes(x: Any, y: Any, highest: Any, twice: Any) -> int:
    highest[()] = x[0]
    for k in range(x.shape[0]):
        highest[()] = max(highest[()], x[k])
    for k in range(y.shape[0]):
        twice[k] = 2 * y[k]
    return 0


X = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_called_on_arrays_and_in_a_trace() -> None:
    expected = X + X[[0, 0, 1]]
    same(smooth(X), expected)
    same(traced(lambda v: smooth(v * 1), X), expected)
    highest, twice = traced(extremes, X.reshape(-1), np.array([3, 4]))
    assert highest == 5
    assert twice.tolist() == [6, 8]


def test_kernel_sees_shaped_views() -> None:
    same(lowered("smooth_for_test", (X,), {}), X + X[[0, 0, 1]])
    made = lowered("extremes_for_test", (X.reshape(-1), np.array([3, 4])), {})
    same(made, (np.float32(5), np.array([6, 8])))


@pytest.mark.slow
def test_slices_of_vmap_run_one_after_the_other() -> None:
    stack = np.stack([X, 3 * X])
    made = gc.vmap(smooth)(stack)
    np.testing.assert_array_equal(made, stack + stack[:, [0, 0, 1]])


def test_redefinition_replaces_but_never_an_op_of_graphc() -> None:
    custom_op("again_for_test")(_smooth)
    second = custom_op("again_for_test", reference=lambda x: x + 1)(_smooth)
    same(second(X), X + 1)
    for name in ("add", "not a name"):
        with pytest.raises(TypeRuleError):
            custom_op(name)(_smooth)


def test_misuse() -> None:
    bad = custom_op("bad_for_test", infer=lambda x: 3)(_smooth)
    for call in (lambda: bad(X), lambda: smooth(X.astype(np.float16)), smooth):
        with pytest.raises(TypeRuleError):
            call()
    rule = lambda x: tensor(F32, (*x.shape, 2))
    wide = custom_op("wide_for_test", infer=rule)(lambda x, out: None)
    assert traced(lambda v: wide(v).shape, X) == (3, 2, 2)


def test_functions_that_cannot_be_called() -> None:
    for made in (3, max, None):
        with pytest.raises(TypeRuleError, match="no Python function"):
            custom_op("uncallable")(made)  # type: ignore[arg-type]
    with pytest.raises(TypeRuleError, match="cuda= of uncallable is no Python function"):
        custom_op("uncallable", cuda=3)  # type: ignore[arg-type]
    with pytest.raises(TypeRuleError, match="short is called with 2 arguments: too many"):
        custom_op("short")(lambda x: None)(X)
    with pytest.raises(TypeRuleError, match="cuda= of short is called with 3 arguments: missing"):
        custom_op("short", cuda=lambda i, x, y, out: None)(_smooth)(X)


def test_statuses() -> None:
    """A custom op's own numbers are told; those that mean something else are not taken for it."""

    def stops(x: np.ndarray, out: np.ndarray) -> int:
        return int(x[0, 0])

    model = gc.compile(custom_op("stops")(stops))
    model(np.zeros((2, 2)))
    for status in (-1, 1, 3, 5, 77, 1 << 31, 1 << 40):
        reason = f"failed with status {status}" if status in (5, 77) else "custom op failed"
        with pytest.raises(RunError, match=reason):
            model(np.full((2, 2), float(status)))


READS_BEYOND = """gir 1
graph @f(%0 x: f32[4096], %1 y: f32[1]) {
  %2 = added_for_test(%0, %1) : f32[4096]
  return %2
}
"""


@pytest.mark.slow
def test_files_call_custom_ops_by_permission_and_with_checked_indices(tmp_path: Any) -> None:
    @custom_op("added_for_test")
    def added(x: Any, y: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            out[i] = x[i] + y[i]

    path = tmp_path / "c.gir"
    path.write_text(READS_BEYOND)
    with pytest.raises(gc.ParseError, match=r"custom_ops=\['added_for_test'\]"):
        gc.load(path)
    with pytest.raises(gc.GraphError, match="no custom op of this program"):
        gc.load(path, custom_ops=["add"])
    x, y = np.zeros(4096, "f4"), np.ones(1, "f4")
    for allowed in (True, "added_for_test", ["added_for_test"]):
        loaded = gc.load(path, custom_ops=allowed)
        with pytest.raises(RunError, match="raised an exception"):
            loaded(x, y)
        with pytest.raises(RunError, match="raised an exception"):
            gc.compile(lambda x, y, f=loaded: f(x, y))(x, y)
    path.write_text(READS_BEYOND.replace("f32[1]", "f32[4096]"))
    assert gc.load(path, custom_ops=True)(x, np.ones(4096, "f4")).tolist() == [1] * 4096
    assert gc.show(gc.parse(READS_BEYOND)) == READS_BEYOND  # text of the program's own


def test_an_infer_function_that_fails_is_named() -> None:
    broken = custom_op("broken_for_test", infer=lambda x: x.shape[7])(_smooth)
    with pytest.raises(TypeRuleError, match=r"infer= of broken_for_test failed .* IndexError"):
        broken(X)


@pytest.mark.slow
@pytest.mark.parametrize("jitted", [False, True])
def test_indices_are_checked_on_request(jitted: bool) -> None:
    def pick(x: Any, which: Any, out: Any) -> None:
        for i in range(which.size):
            out[i] = x[which[i]]

    op = custom_op("pick_for_test", infer=lambda x, which: x, boundscheck=True)
    picked = gc.compile(op(numba.njit(pick) if jitted else pick))
    x = np.arange(3, dtype="f4")
    assert picked(x, np.array([0, 2, -1])).tolist() == [0, 2, 2]
    for which in ([0, 1, 3], [-4, 0, 1], [0, 2**62, 0]):
        with pytest.raises(RunError, match=r"(?s)index out of range.*pick_for_test"):
            picked(x, np.array(which))
