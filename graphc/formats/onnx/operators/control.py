"""If, Loop and Scan: graphc's own control flow; loops that change shapes are copied out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphError, LimitError
from graphc.formats.deciding_values import axes_of, is_known, known, number, refuse
from graphc.formats.onnx.interpret import Refusal
from graphc.formats.onnx.records import Subgraph
from graphc.formats.onnx.table import operator
from graphc.formats.onnx.turns import counted
from graphc.frontend.transforms.control import cond, scan, while_loop
from graphc.ops.record.value import functions as f

MOST_TURNS = 1 << 20  # of a loop whose counts are an array


def _flag(x: Any) -> Any:
    return f.astype(f.reshape(x, ()), bool)


@operator("If", folds=False)
def if_(condition: Any, *, then_branch: Subgraph, else_branch: Subgraph, call: Any) -> Any:
    if not is_known(condition):
        try:
            return cond(
                _flag(condition),
                lambda: tuple(call.run(then_branch)),
                lambda: tuple(call.run(else_branch)),
            )
        except LimitError:
            raise
        except GraphError:  # they differ in shape, or one has no results at these sizes:
            pass  # only a run can tell which it is
    return tuple(call.run(then_branch if number(condition) else else_branch))


@operator("Loop", folds=False)
def loop(most: Any = None, go: Any = None, *state: Any, body: Subgraph, call: Any) -> Any:
    stacked = len(body.outputs) - 1 - len(state)
    refuse(stacked >= 0, "its graph has too few results")
    steady = go is None or is_known(go)
    if go is not None and steady and not number(go):
        return (*state, *_nothing(call, body, state, stacked))
    if not any(isinstance(v, list) or v is None for v in state):
        try:
            made = _compiled(most, go, state, body, call, stacked)
            if made is not None:
                return made
        except (Refusal, LimitError):
            raise
        except GraphError:  # what it carries changes its shape
            pass
    return _copied(most, go, state, body, call, stacked)


def _compiled(
    most: Any, go: Any, state: tuple[Any, ...], body: Subgraph, call: Any, stacked: int
) -> Any:
    """The loop as one node, or None where how often it runs decides a size."""
    count = _turns(most, go, state, body, call, stacked)
    if count is not None:

        def step(carry: Any, i: Any) -> Any:
            made = call.run(body, i, np.array(True), *carry)
            return tuple(made[1 : 1 + len(state)]), tuple(made[1 + len(state) :])

        if not count:
            return None
        refuse(count <= MOST_TURNS, f"{count} turns")
        carry, rows = scan(step, tuple(state), np.arange(count, dtype=np.int64))
        return (*carry, *rows)
    if stacked:
        return None
    limit = np.int64(2**62) if most is None else f.reshape(f.astype(most, np.int64), ())
    first = f.full((), True) if go is None else _flag(go)

    def test(carry: Any) -> Any:
        return f.logical_and(f.less(carry[0], limit), carry[1])

    def turn(carry: Any) -> Any:
        made = call.run(body, carry[0], carry[1], *carry[2])
        return f.add(carry[0], 1), _flag(made[0]), tuple(made[1:])

    return tuple(while_loop(test, turn, (f.zeros((), np.int64), first, tuple(state)))[2])


def _turns(
    most: Any, go: Any, state: tuple[Any, ...], body: Subgraph, call: Any, stacked: int
) -> Any:
    """How often a loop runs, or None where only a run can tell."""
    if _keeps_going(body):
        short = is_known(most) and most is not None and number(most) <= MOST_TURNS
        return max(number(most), 0) if most is not None and (stacked or short) else None
    if not is_known(most) or not is_known(go):
        return None
    return counted(None if most is None else number(most), state, body, call)


def _keeps_going(body: Subgraph) -> bool:
    """Whether the condition that a body returns is the one that it was given, or a constant."""
    name = body.outputs[0]
    for _ in range(len(body.nodes)):
        maker = next((n for n in body.nodes if name in n.outputs), None)
        if maker is None:
            break
        if maker.op == "Constant":
            value = maker.attributes.get("value")
            return value is not None and value.size == 1 and bool(value.reshape(-1)[0])
        if maker.op != "Identity":
            return False
        name = maker.inputs[0]
    constant = body.constants.get(name)
    return name == body.inputs[1] if constant is None else bool(constant.reshape(-1)[0])


def _copied(
    most: Any, go: Any, state: tuple[Any, ...], body: Subgraph, call: Any, stacked: int
) -> Any:
    """The loop written out, each turn with shapes of its own."""
    count = None if most is None else number(most)
    carry = list(state)
    rows: list[list[Any]] = [[] for _ in range(stacked)]
    going, turn = go is None or bool(number(go)), 0
    while going and (count is None or turn < count):
        made = call.run(body, np.array(turn, np.int64), np.array(True), *carry)
        going = bool(number(made[0]))
        carry = made[1 : 1 + len(state)]
        for row, value in zip(rows, made[1 + len(state) :]):
            row.append(value)
        turn += 1
    if not turn:
        return (*carry, *_nothing(call, body, state, stacked))
    return (*carry, *(f.stack(row, 0) for row in rows))


def _nothing(call: Any, body: Subgraph, state: Sequence[Any], stacked: int) -> list[Any]:
    """The rows of a loop without a turn: their types are those of a turn.

    Such a turn may read what is not there, as the first row of none: then its counters are values
    that nobody knows.
    """
    if not stacked:
        return []
    turn = np.array(0, np.int64)
    try:
        made = call.run(body, turn, np.array(True), *state)
    except Refusal:
        turn, *state = (_unknown(value) for value in (turn, *state))
        made = call.run(body, turn, np.array(True), *state)
    return [f.zeros((0, *v.shape), v.dtype) for v in made[1 + len(state) :]]


def _unknown(value: Any) -> Any:
    single = is_known(value) and isinstance(value, np.ndarray) and value.size == 1
    return f.zeros(value.shape, value.dtype) if single else value


@operator("Scan", since=9, folds=False)
def scan_(
    *values: Any,
    body: Subgraph,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    call: Any,
) -> Any:
    refuse(1 <= num_scan_inputs <= len(values), f"{num_scan_inputs} of {len(values)} inputs")
    kept = len(values) - num_scan_inputs
    state, xs = values[:kept], values[kept:]
    axes = scan_input_axes or (0,) * len(xs)
    backwards = scan_input_directions or (0,) * len(xs)
    made = [f.moveaxis(x, *axes_of([axis], x.ndim), 0) for x, axis in zip(xs, axes)]
    made = [f.flip(x, 0) if back else x for x, back in zip(made, backwards)]

    def step(carry: Any, rows: Any) -> Any:
        results = call.run(body, *carry, *rows)
        return tuple(results[:kept]), tuple(results[kept:])

    carry, rows = scan(step, tuple(state), tuple(made))
    outwards = scan_output_directions or (0,) * len(rows)
    places = scan_output_axes or (0,) * len(rows)
    rows = [f.flip(y, 0) if back else y for y, back in zip(rows, outwards)]
    rows = [f.moveaxis(y, 0, *axes_of([axis], y.ndim)) for y, axis in zip(rows, places)]
    return (*carry, *rows)


@operator("Scan", folds=False)
def scan_batched(
    lengths: Any,
    *values: Any,
    body: Subgraph,
    num_scan_inputs: int,
    directions: Any = None,
    call: Any,
) -> Any:
    """The form of opset 8: the first axis of everything is a batch, one scan for each of it."""
    batch = values[0].shape[0]
    refuse(lengths is None, "sequences of different lengths are not supported")
    made = [
        scan_(
            *(f.getitem(v, k) for v in values),
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
            call=call,
        )
        for k in range(batch)
    ]
    return tuple(f.stack(list(parts), 0) for parts in zip(*made))


__all__ = ["known"]
