"""What is said where Python needs a number of a traced array: which array, and what to write."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc


def _chosen(x, training):
    return x if training else -x


def _looped(x, n):
    return sum(x for _ in range(n))


def _asserted(x):
    assert np.all(x > 0)
    return x


ITEMS = [np.zeros(2), np.ones(2)]


@pytest.mark.parametrize(
    ("function", "argument", "parts"),
    [
        (_chosen, True, ["argument 'training', bool[],", 'static=["training"]']),
        (_looped, 3, ["argument 'n', i64[],", "gc.fori", 'static=["n"]']),
        (lambda x, o: x if o["a"] else -x, {"a": True}, ["argument 'o.a'", "static=[...]"]),
        (lambda x, y: x if y else -x, [True, False], ["argument 'y', bool[2],", "static=[...]"]),
        (lambda x, y: gc.fori(0, 2, lambda k, c: c * int(k), x), 0, ["<Tracer %", "astype(int)"]),
        (lambda x, y: _asserted(x), 0, ["<Tracer %", "gc.assert_"]),
        (lambda x, y: x if x[0] > 0 and x[1] > 0 else y, 0, ["(x > 0) & (x < 1)"]),
        (lambda x, y: print(f"{x.sum():.3f}"), 0, ["gc.print("]),
        (lambda x, y: x * int(x[0]), 0, ["x.astype(int)"]),
        (lambda x, i: x[:2] + ITEMS[i + 1], 0, ["np.stack(items)[i]"]),
        (lambda x, i: x * {0: 1.0}[i], 0, ["argument 'i', i64[],", "gc.switch"]),
        (lambda x, i: x * {0: 1.0}[i + 1], 0, ["<Tracer %", "gc.switch"]),
    ],
)
def test_what_needs_a_number_names_the_argument_and_what_stands_for_it(function, argument, parts):
    argument = (
        {k: np.array(v) for k, v in argument.items()}
        if isinstance(argument, dict)
        else (np.array(argument))
    )
    with pytest.raises(gc.TraceError, match="no value yet") as caught:
        gc.compile(function)(np.ones(3), argument)
    assert not [part for part in parts if part not in str(caught.value)]
    assert caught.value.location is not None


def test_a_loss_that_returns_more_is_told_of_has_aux():
    for transform in (gc.grad, gc.value_and_grad):
        with pytest.raises(gc.TraceError, match="has_aux=True"):
            transform(lambda w: ((w * w).sum(), w))(np.ones(3))
        with pytest.raises(gc.TraceError) as caught:
            transform(lambda w: w * w)(np.ones(3))
        assert "has_aux" not in str(caught.value)
