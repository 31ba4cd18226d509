"""LSTM, GRU and plain recurrent layers: all steps' projections at once, then a scan over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.table import aten
from graphc.frontend.transforms.control import scan
from graphc.ops.record.value import functions as f

State = tuple[Any, ...]


def _parts(x: Any, count: int) -> list[Any]:
    return list(f.split(x, count, -1))


def _lstm_step(row: Any, held: Any, state: State) -> State:
    i, forget, g, o = _parts(f.add(row, held), 4)
    memory = f.add(f.multiply(f.sigmoid(forget), state[1]), f.multiply(f.sigmoid(i), f.tanh(g)))
    return f.multiply(f.sigmoid(o), f.tanh(memory)), memory


def _gru_step(row: Any, held: Any, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = _parts(row, 3), _parts(held, 3)
    reset, update = f.sigmoid(f.add(xr, hr)), f.sigmoid(f.add(xz, hz))
    new = f.tanh(f.add(xn, f.multiply(reset, hn)))
    return (f.add(new, f.multiply(update, f.subtract(state[0], new))),)


def _plain_step(name: str) -> Callable[[Any, Any, State], State]:
    return lambda row, held, state: (getattr(f, name)(f.add(row, held)),)


_STEPS: dict[str, Callable[[Any, Any, State], State]] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": _plain_step("tanh"),
    "rnn_relu": _plain_step("relu"),
}


def _projected(x: Any, weight: Any, bias: Any) -> Any:
    made = f.matmul(x, f.swapaxes(weight, 0, 1))
    return made if bias is None else f.add(made, bias)


def _direction(
    kind: str, x: Any, first: State, weights: Sequence[Any], back: bool
) -> tuple[Any, State]:
    """One layer one way: y[time, batch, hidden] and the last state."""
    w_in, w_held, *rest = weights
    b_in, b_held = (rest[0], rest[1]) if len(rest) > 1 else (None, None)
    project = rest[-1] if len(rest) in (1, 3) else None
    shown = None if project is None else f.swapaxes(project, 0, 1)
    turned = f.swapaxes(w_held, 0, 1)

    def step(state: State, row: Any) -> tuple[State, Any]:
        held = f.matmul(state[0], turned)
        held = held if b_held is None else f.add(held, b_held)
        new = _STEPS[kind](row, held, state)
        if shown is not None:
            new = (f.matmul(new[0], shown), *new[1:])
        return new, new[0]

    last, y = scan(step, first, _projected(x, w_in, b_in), reverse=back)
    return y, last


def recurrent(
    kind: str,
    x: Any,
    states: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    layers: int,
    both: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    batched = x.ndim == 3
    states = [s if batched else f.expand_dims(s, 1) for s in states]
    x = x if batched else f.expand_dims(x, 1)
    x = f.swapaxes(x, 0, 1) if batch_first and batched else x
    ways = 2 if both else 1
    each = len(params) // (layers * ways)
    refuse(each * layers * ways == len(params) and each >= 2, f"{len(params)} weights")
    lasts: list[State] = []
    for layer in range(layers):
        made = []
        for way in range(ways):
            k = layer * ways + way
            first = tuple(f.getitem(s, k) for s in states)
            y, last = _direction(kind, x, first, params[k * each : (k + 1) * each], way == 1)
            made.append(y)
            lasts.append(last)
        x = made[0] if ways == 1 else f.concatenate(made, -1)
    finals = [f.stack([last[k] for last in lasts], 0) for k in range(len(states))]
    if not batched:
        return f.squeeze(x, 1), *(f.squeeze(v, 1) for v in finals)
    return (f.swapaxes(x, 0, 1) if batch_first else x), *finals


def _layer(kind: str) -> Callable[..., Any]:
    def layer(
        x: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> Any:
        refuse(not (train and dropout), "dropout in training: export the module in eval()")
        states = hx if isinstance(hx, list) else [hx]
        return recurrent(
            kind, x, states, params, has_biases, num_layers, bidirectional, batch_first
        )

    return layer


for _kind in _STEPS:
    aten(f"{_kind}.input", _kind)(_layer(_kind))


def _cell(kind: str) -> Callable[..., Any]:
    def cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        state = tuple(hx) if isinstance(hx, list) else (hx,)
        held = _projected(state[0], w_hh, b_hh)
        made = _STEPS[kind](_projected(x, w_ih, b_ih), held, state)
        return made if len(made) > 1 else made[0]

    return cell


for _kind in _STEPS:
    aten(f"{_kind}_cell")(_cell(_kind))
