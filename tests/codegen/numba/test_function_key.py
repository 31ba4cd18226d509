"""What a custom op reads from outside belongs to the key of its code."""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from op_harness import node_of

import graphc as gc
from graphc.codegen.numba.function_key import ONE_OF_A_KIND, function_text
from graphc.errors import GraphError
from graphc.ir.op import OPS, Library


class Pair(NamedTuple):
    low: float
    high: float


class Level(enum.IntEnum):
    TWO = 2
    THREE = 3


def _with_globals(source: str, **values: Any) -> Callable[..., Any]:
    scope: dict[str, Any] = {"np": np, **values}
    exec(source, scope)
    made: Callable[..., Any] = scope["op"]
    return made


_LOOP = "def op(x, out):\n    for i in range(x.shape[0]):\n        out[i] = x[i] * {}\n"


def closure_of_array(value: float) -> Callable[..., Any]:
    table = np.array([value])

    def op(x: Any, out: Any) -> None:
        for i in range(x.shape[0]):
            out[i] = x[i] * table[0]

    return op


def inner_function(value: float) -> Callable[..., Any]:
    def op(x: Any, out: Any) -> None:
        def inner(a: Any) -> Any:
            return a * value

        for i in range(x.shape[0]):
            out[i] = inner(x[i])

    return op


def helper(value: float) -> Callable[..., Any]:
    table = np.array([value])

    @numba.njit
    def read() -> Any:
        return table[0]

    @numba.njit
    def through() -> Any:
        return read()

    return _with_globals(_LOOP.format("through()"), through=through)


def default(value: float) -> Callable[..., Any]:
    def op(x: Any, out: Any, factor: float = value) -> None:
        for i in range(x.shape[0]):
            out[i] = x[i] * factor

    return op


def module_attribute(value: float) -> Callable[..., Any]:
    settings = ModuleType("settings")
    settings.rate = value  # type: ignore[attr-defined]
    return _with_globals(_LOOP.format("settings.rate"), settings=settings)


CAPTURES: dict[str, Callable[[float], Callable[..., Any]]] = {
    "closure of an array": closure_of_array,
    "inner function": inner_function,
    "helpers": helper,
    "default": default,
    "attribute of a module": module_attribute,
    "global array": lambda v: _with_globals(_LOOP.format("t[0]"), t=np.array([v])),
    "global number": lambda v: _with_globals(_LOOP.format("t"), t=v),
    "global NumPy number": lambda v: _with_globals(_LOOP.format("t"), t=np.float32(v)),
    "global complex": lambda v: _with_globals(_LOOP.format("t.imag"), t=complex(0, v)),
    "global tuple": lambda v: _with_globals(_LOOP.format("t[1]"), t=(1.0, v)),
    "tuple of arrays": lambda v: _with_globals(_LOOP.format("t[0][0]"), t=(np.array([v]),)),
    "named tuple": lambda v: _with_globals(_LOOP.format("t.high"), t=Pair(1.0, v)),
    "enum": lambda v: _with_globals(_LOOP.format("t.value"), t=Level(int(v))),
    "lambda": lambda v: _with_globals(_LOOP.format("t(1.0)"), t=numba.njit(lambda a: a * v)),
    "constant": lambda v: _with_globals(_LOOP.format(v)),
}


@pytest.mark.parametrize("kind", CAPTURES)
def test_every_capture_is_in_the_key(kind: str) -> None:
    two, again, three = (function_text(CAPTURES[kind](value)) for value in (2.0, 2.0, 3.0))
    assert two == again
    assert two != three
    assert ONE_OF_A_KIND not in two


@pytest.mark.slow
def test_captures_have_no_part_in_each_others_results() -> None:
    """Some of them in one program."""
    x = np.ones(3)
    ops = []
    for kind in ("closure of an array", "attribute of a module"):
        for value in (2.0, 3.0):
            name = f"capture_{kind.replace(' ', '_')}_{value:.0f}"
            ops.append((kind, value, gc.custom_op(name, infer=lambda x: x)(CAPTURES[kind](value))))
    made = gc.compile(lambda x: [op(x) for _, _, op in ops])(x)
    assert {(kind, value): r.tolist() for (kind, value, _), r in zip(ops, made)} == {
        (kind, value): [value] * 3 for kind, value, _ in ops
    }


def test_options_of_numba_are_in_the_key() -> None:
    made = [function_text(numba.njit(fastmath=f)(_with_globals(_LOOP.format(1)))) for f in (0, 1)]
    assert made[0] != made[1]


@pytest.mark.slow
def test_helpers_are_compiled_with_the_values_of_now() -> None:
    table = np.array([2.0])

    @numba.njit
    def read(i: int) -> Any:
        return table[i]

    assert read(0) == 2  # compiled before
    op = gc.custom_op("helper_renewed", infer=lambda x: x)(
        _with_globals(_LOOP.format("read(0)"), read=read)
    )
    compiled = gc.compile(lambda x: op(x))
    assert compiled(np.ones(2)).tolist() == [2, 2]
    table[0] = 3
    assert compiled(np.ones(3)).tolist() == [3, 3, 3]  # another shape is compiled now


def test_what_no_text_tells_apart_is_one_of_a_kind() -> None:
    texts = [
        function_text(_with_globals(_LOOP.format("t.x"), t=SimpleNamespace(x=1))) for _ in "ab"
    ]
    assert all(ONE_OF_A_KIND in text for text in texts)
    assert texts[0] != texts[1]


@pytest.mark.parametrize("table", [np.zeros(300_000), np.arange(6.0)[::2]], ids=["big", "strided"])
def test_no_address_of_an_array_gets_into_an_object(table: Any) -> None:
    op = gc.custom_op("address_for_test", infer=lambda x: x)(
        _with_globals(_LOOP.format("t[i]"), t=table)
    )
    with pytest.raises(GraphError, match="make it an operand"):
        gc.compile(lambda x: op(x))(np.ones(3))


def test_functions_of_graphc_have_texts() -> None:
    for name, op in OPS.items():
        if not isinstance(op.lower, Library) or op.lower.kernel is None or op.samples is None:
            continue
        sample = op.samples()[0]
        node = node_of(op, sample.operands, sample.attrs)
        assert ONE_OF_A_KIND not in function_text(op.lower.kernel(node)), name
