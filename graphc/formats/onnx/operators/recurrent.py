"""RNN, GRU and LSTM: the projection of all steps at once, then a scan over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.onnx.table import operator
from graphc.frontend.transforms.control import scan
from graphc.ops.record.value import functions as f

Gate = Callable[[Any], Any]


def activation(
    name: str, alpha: float | None, beta: float | None, gamma: float | None = None
) -> Gate:
    """An activation by its name; numbers that are not given are those of its operator."""
    from graphc.formats.onnx.operators import elementwise as e

    plain: dict[str, Gate] = {
        "sigmoid": f.sigmoid,
        "tanh": f.tanh,
        "relu": f.relu,
        "softsign": f.softsign,
        "softplus": f.softplus,
    }
    key = name.lower()
    if key in plain:
        return plain[key]
    given = {k: v for k, v in (("alpha", alpha), ("beta", beta)) if v is not None}
    one = {k: v for k, v in given.items() if k == "alpha"}
    table: dict[str, Gate] = {
        "leakyrelu": lambda x: e.leaky_relu(x, **one),
        "thresholdedrelu": lambda x: e.thresholded_relu(x, **one),
        "elu": lambda x: e.elu(x, **one),
        "selu": lambda x: e.selu(x, **one, **({} if gamma is None else {"gamma": gamma})),
        "hardsigmoid": lambda x: e.hard_sigmoid(x, **given),
        "affine": lambda x: f.add(f.multiply(x, given.get("alpha", 1.0)), given.get("beta", 0.0)),
        "scaledtanh": lambda x: f.multiply(
            f.tanh(f.multiply(x, given.get("beta", 1.0))), given.get("alpha", 1.0)
        ),
    }
    refuse(key in table, f"no activation {name!r}")
    return table[key]


class _Recurrence:
    """What the three operators share: directions, layouts, lengths, clipping, activations.

    `default` are the activations of one direction, `size` the width of the state where no attribute
    says it; the attributes are those of ONNX.
    """

    def __init__(
        self,
        default: Sequence[str],
        size: int,
        *,
        activation_alpha: Sequence[float] = (),
        activation_beta: Sequence[float] = (),
        activations: Sequence[str] = (),
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        layout: int = 0,
    ) -> None:
        refuse(direction in ("forward", "reverse", "bidirectional"), f"no direction {direction!r}")
        self.directions = 2 if direction == "bidirectional" else 1
        self.backwards = [direction == "reverse"] if self.directions == 1 else [False, True]
        self.hidden, self.layout, self.clip = hidden_size or size, layout, clip
        names = tuple(activations) or tuple(default) * self.directions
        refuse(len(names) == len(default) * self.directions, f"{len(names)} activations")
        none = [None] * len(names)
        rows = [*activation_alpha, *none], [*activation_beta, *none]
        gates = [activation(n, a, b) for n, a, b in zip(names, *rows)]
        self.gates = [gates[k::1][: len(default)] for k in range(0, len(gates), len(default))]

    def require_weights(self, *given: Any) -> None:
        """Refuse weights of another number of directions: nothing may grow with what they say."""
        for part in given:
            refuse(
                part is None or (part.ndim > 0 and part.shape[0] == self.directions),
                f"weights of {self.directions} direction(s) are needed, "
                f"got {None if part is None else list(part.shape)}",
            )

    def clipped(self, x: Any) -> Any:
        if not self.clip:
            return x
        bound = np.asarray(self.clip, x.dtype)
        return f.clip(x, f.negative(bound), bound)

    def run(
        self, x: Any, lengths: Any, states: Sequence[Any], cell: Callable[..., Any]
    ) -> tuple[Any, ...]:
        """All steps of all directions: y and the last of each state, in the layout of the file."""
        steps = f.swapaxes(x, 0, 1) if self.layout else x
        batch = steps.shape[1]
        first = [self._initial(s, batch, x.dtype) for s in states]
        ys, lasts = [], []
        for d in range(self.directions):
            begin = tuple(f.getitem(s, d) for s in first)
            y, last = self._one(steps, lengths, begin, cell, d)
            ys.append(y)
            lasts.append(last)
        y = f.stack(ys, 1)
        made = [f.stack([last[k] for last in lasts], 0) for k in range(len(first))]
        if self.layout:
            y = f.transpose(y, (2, 0, 1, 3))
            made = [f.swapaxes(v, 0, 1) for v in made]
        return (y, *made)

    def _initial(self, state: Any, batch: int, kind: Any) -> Any:
        if state is None:
            return f.zeros((self.directions, batch, self.hidden), kind)
        return f.swapaxes(state, 0, 1) if self.layout else state

    def _one(
        self, steps: Any, lengths: Any, first: tuple[Any, ...], cell: Callable[..., Any], d: int
    ) -> tuple[Any, tuple[Any, ...]]:
        count = steps.shape[0]
        back = self.backwards[d]
        turned = _turned(steps, lengths) if back else steps
        projected, step = cell(turned, d)
        numbers = f.arange(count, dtype=np.int32)
        until = None if lengths is None else f.reshape(f.astype(lengths, np.int32), (-1, 1))

        def one(carry: Any, row: Any) -> Any:
            new = step(carry, row[0])
            if until is None:
                return new, new[0]
            alive = f.less(row[1], until)
            kept = tuple(f.where(alive, n, c) for n, c in zip(new, carry))
            return kept, f.where(alive, new[0], np.zeros((), new[0].dtype))

        last, ys = scan(one, first, (projected, numbers))
        return (_turned(ys, lengths) if back else ys), last


def _turned(steps: Any, lengths: Any) -> Any:
    """Steps the other way round, within the length of each sequence."""
    if lengths is None:
        return f.flip(steps, 0)
    from graphc.formats.onnx.operators.shapes import reverse_sequence

    return reverse_sequence(steps, lengths)


def _gates(x: Any, count: int) -> list[Any]:
    return f.split(x, count, -1)  # type: ignore[no-any-return]


def _projection(steps: Any, w: Any, bias: Any, d: int) -> Any:
    """x W^T + b of all steps at once."""
    made = f.matmul(steps, f.swapaxes(f.getitem(w, d), 0, 1))
    return made if bias is None else f.add(made, bias)


def _biases(b: Any, d: int, gates: int) -> tuple[Any, Any]:
    """The biases of the projection and of the recurrence."""
    if b is None:
        return None, None
    one, other = f.split(f.getitem(b, d), 2, 0)
    return one, other


@operator("RNN")
def rnn(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, **how: Any
) -> Any:
    cells = _Recurrence(("Tanh",), r.shape[-1], **how)
    cells.require_weights(w, r, b)

    def cell(steps: Any, d: int) -> Any:
        one, other = _biases(b, d, 1)
        held = f.swapaxes(f.getitem(r, d), 0, 1)
        (act,) = cells.gates[d]

        def step(carry: Any, row: Any) -> Any:
            return (act(cells.clipped(f.add(row, f.matmul(carry[0], held)))),)

        return _projection(steps, w, None if one is None else f.add(one, other), d), step

    return cells.run(x, lengths, (h,), cell)


@operator("GRU")
def gru(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    *,
    linear_before_reset: int = 0,
    **how: Any,
) -> Any:
    cells = _Recurrence(("Sigmoid", "Tanh"), r.shape[-1], **how)
    size = cells.hidden
    cells.require_weights(w, r, b)

    def cell(steps: Any, d: int) -> Any:
        one, other = _biases(b, d, 3)
        held = f.swapaxes(f.getitem(r, d), 0, 1)
        outer, inner = (
            f.getitem(held, (slice(None), slice(0, 2 * size))),
            f.getitem(held, (slice(None), slice(2 * size, None))),
        )
        act, squash = cells.gates[d]
        last = None if other is None else f.getitem(other, slice(2 * size, None))

        def step(carry: Any, row: Any) -> Any:
            (old,) = carry
            xz, xr, xh = _gates(row, 3)
            if linear_before_reset:
                hz, hr, hh = _gates(f.matmul(old, held), 3)
                hh = hh if last is None else f.add(hh, last)
                z, reset = (act(cells.clipped(f.add(p, q))) for p, q in ((xz, hz), (xr, hr)))
                new = squash(cells.clipped(f.add(xh, f.multiply(reset, hh))))
            else:
                hz, hr = _gates(f.matmul(old, outer), 2)
                z, reset = (act(cells.clipped(f.add(p, q))) for p, q in ((xz, hz), (xr, hr)))
                part = f.matmul(f.multiply(reset, old), inner)
                part = part if last is None else f.add(part, last)
                new = squash(cells.clipped(f.add(xh, part)))
            return (f.add(new, f.multiply(z, f.subtract(old, new))),)

        if other is not None:
            zero = f.zeros((size,), other.dtype)
            one = f.add(one, f.concatenate([f.getitem(other, slice(0, 2 * size)), zero], 0))
        return _projection(steps, w, one, d), step

    return cells.run(x, lengths, (h,), cell)


@operator("LSTM")
def lstm(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
    **how: Any,
) -> Any:
    def product(d: int, weights: Any) -> Gate:
        turned = f.swapaxes(f.getitem(weights, d), 0, 1)
        return lambda rows: f.matmul(rows, turned)

    return lstm_by(x, product, (w,), (r,), r.shape[-1], b, lengths, h, c, p, **how)


def lstm_by(
    x: Any,
    product: Callable[..., Gate],
    w: tuple[Any, ...],
    r: tuple[Any, ...],
    size: int,
    b: Any,
    lengths: Any,
    h: Any,
    c: Any,
    p: Any,
    *,
    input_forget: int = 0,
    **how: Any,
) -> Any:
    """An LSTM where product(d, *w) multiplies rows of x by the weights of a direction, and
    product(d, *r) those of the state; the first of w and of r are the weights."""
    cells = _Recurrence(("Sigmoid", "Tanh", "Tanh"), size, **how)
    cells.require_weights(w[0], r[0], b, p)

    def cell(steps: Any, d: int) -> Any:
        one, other = _biases(b, d, 4)
        act, squash, last = cells.gates[d]
        recur = product(d, *r)
        peep = [None] * 3 if p is None else f.split(f.getitem(p, d), 3, 0)

        def gate(row: Any, peephole: Any, memory: Any) -> Any:
            seen = row if peephole is None else f.add(row, f.multiply(peephole, memory))
            return act(cells.clipped(seen))

        def step(carry: Any, row: Any) -> Any:
            old, memory = carry
            xi, xo, xf, xc = _gates(f.add(row, recur(old)), 4)
            enter = gate(xi, peep[0], memory)
            forget = f.subtract(1, enter) if input_forget else gate(xf, peep[2], memory)
            new = f.add(f.multiply(forget, memory), f.multiply(enter, squash(cells.clipped(xc))))
            leave = gate(xo, peep[1], new)
            return f.multiply(leave, last(new)), new

        rows = product(d, *w)(steps)
        return rows if one is None else f.add(rows, f.add(one, other)), step

    return cells.run(x, lengths, (h, c), cell)
