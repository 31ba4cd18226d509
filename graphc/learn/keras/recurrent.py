"""Recurrent layers: cells over time, forwards, backwards and both.

    cell.inputs(x)          what of a step does not need its state, for all steps at once
    cell.step(states, part) -> (output, states)

Where a step does not count (`mask`), states stay as they are and the output is the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.frontend.transforms.control import scan
from graphc.learn.keras.activations import activation
from graphc.learn.keras.table import (
    Array,
    Function,
    Masked,
    Settings,
    Unsupported,
    Weights,
    as_real,
    expect,
    heeding,
    kind_of,
    layers,
    one_of,
    rank_of,
    some,
)
from graphc.ops.record.value import functions as f

States = tuple[Any, ...]


@record(frozen=True)
class Cell:
    """One step of a recurrence.

    widths   of its states; those of a stack of cells one behind the other
    inputs   x[..., width] -> what the step reads
    step     (states, what it reads) -> (output, states)
    """

    widths: tuple[int, ...]
    inputs: Callable[[Any], Any]
    step: Callable[[States, Any], tuple[Any, States]]
    element: Any
    output: int = 0  # which state is the output of the step before


def _product(kernel: Array, bias: Array | None) -> Function:
    def call(x: Any) -> Any:
        made = f.matmul(as_real(x, kernel.dtype), kernel)
        return made if bias is None else f.add(made, bias)

    return call


def _simple(settings: Settings, weights: Weights) -> Cell:
    kernel, recurrent, *bias = some(settings, weights, 2, 3)
    after = activation(settings)

    def step(states: States, part: Any) -> tuple[Any, States]:
        h = after(f.add(part, f.matmul(states[0], recurrent)))
        return h, (h,)

    inputs = _product(kernel, bias[0] if bias else None)
    return Cell((recurrent.shape[0],), inputs, step, kernel.dtype)


def _lstm(settings: Settings, weights: Weights) -> Cell:
    """Gates i f g o."""
    kernel, recurrent, *bias = some(settings, weights, 2, 3)
    after, gate = activation(settings), activation(settings, "recurrent_activation")

    def step(states: States, part: Any) -> tuple[Any, States]:
        h, c = states
        i, forget, g, o = f.split(f.add(part, f.matmul(h, recurrent)), 4, axis=-1)
        c = f.add(f.multiply(gate(forget), c), f.multiply(gate(i), after(g)))
        h = f.multiply(gate(o), after(c))
        return h, (h, c)

    width = recurrent.shape[0]
    return Cell((width,) * 2, _product(kernel, bias[0] if bias else None), step, kernel.dtype)


def _gru(settings: Settings, weights: Weights) -> Cell:
    """Gates z r h; with `reset_after` there are two biases."""
    kernel, recurrent, *biases = some(settings, weights, 2, 3)
    after, gate = activation(settings), activation(settings, "recurrent_activation")
    width, resets_after = recurrent.shape[0], bool(settings.get("reset_after", True))
    first: Array | None = None
    second: Array | None = None
    if biases:
        first, second = biases[0] if resets_after else (biases[0], None)

    def step(states: States, part: Any) -> tuple[Any, States]:
        (h,) = states
        both, last = part[..., : 2 * width], part[..., 2 * width :]
        if resets_after:
            pull = _product(recurrent, second)(h)
            z, r = f.split(gate(f.add(both, pull[..., : 2 * width])), 2, axis=-1)
            new = after(f.add(last, f.multiply(r, pull[..., 2 * width :])))
        else:
            pull = f.matmul(h, recurrent[:, : 2 * width])
            z, r = f.split(gate(f.add(both, pull)), 2, axis=-1)
            new = after(f.add(last, f.matmul(f.multiply(r, h), recurrent[:, 2 * width :])))
        h = f.add(f.multiply(z, h), f.multiply(f.subtract(1, z), new))
        return h, (h,)

    return Cell((width,), _product(kernel, first), step, kernel.dtype)


def _stack(cells: Sequence[Cell]) -> Cell:
    """Each cell reads what the one below it made."""
    widths = tuple(width for cell in cells for width in cell.widths)

    def step(states: States, part: Any) -> tuple[Any, States]:
        made: list[Any] = []
        for k, cell in enumerate(cells):
            own = states[len(made) : len(made) + len(cell.widths)]
            part, new = cell.step(own, cell.inputs(part) if k else part)
            made += new
        return part, tuple(made)

    last = len(widths) - len(cells[-1].widths)
    return Cell(widths, cells[0].inputs, step, cells[0].element, last)


_CELLS: dict[str, Callable[[Settings, Weights], Cell]] = {
    **dict.fromkeys(("SimpleRNN", "SimpleRNNCell"), _simple),
    **dict.fromkeys(("LSTM", "LSTMCell"), _lstm),
    **dict.fromkeys(("GRU", "GRUCell"), _gru),
}


def _cell(entry: Settings, weights: Weights) -> Cell:
    kind, settings = kind_of(entry), entry["config"]
    if kind == "StackedRNNCells":
        held, seen, made = weights.child("cells"), dict[str, int](), []
        for part in settings["cells"]:
            title = _TITLES.get(kind_of(part), "")
            count = seen[title] = seen.get(title, -1) + 1
            made.append(_cell(part, held.child(f"{title}_{count}" if count else title)))
        return _stack(made)
    if kind not in _CELLS:
        raise Unsupported(f"cell={kind!r}"[:80])
    return heeding(settings, lambda told: _CELLS[kind](told, weights))


_TITLES = {"SimpleRNNCell": "simple_rnn_cell", "LSTMCell": "lstm_cell", "GRUCell": "gru_cell"}


_RECURRENT = ("SimpleRNN", "LSTM", "GRU", "RNN")


@layers(*_RECURRENT)
def recurrent(settings: Settings, weights: Weights) -> Function:
    run, shows = _run(settings, weights), bool(settings.get("return_sequences"))
    returns = bool(settings.get("return_state"))

    def call(
        sequences: Any, initial_state: Any = None, mask: Any = None, sequences_mask: Any = None
    ) -> Any:
        """The mask of sequences that first states come with (`sequences_mask`) is not heeded, as in
        Keras, but what is made of them has it."""
        made, states = run(sequences, initial_state, mask)
        kept = sequences_mask if mask is None else mask
        result = Masked(made, kept) if shows and kept is not None else made
        return (result, *states) if returns else result

    return call


def _expect_states(settings: Settings) -> None:
    """Raise Unsupported for states of a stack of cells: Keras nests them."""
    stacked = settings.get("cell", {}).get("class_name") == "StackedRNNCells"
    if settings.get("return_state") and stacked:
        raise Unsupported("return_state=True of a stack of cells")


def _run(settings: Settings, weights: Weights) -> Callable[..., tuple[Any, States]]:
    """(sequences, first states, mask) -> (outputs of all steps or of the last, last states)."""
    expect(settings, stateful=False, time_major=False)
    _expect_states(settings)
    kind, shows = settings["class_name"], bool(settings.get("return_sequences"))
    held, backwards = weights.child("cell"), bool(settings.get("go_backwards"))
    cell = _cell(settings["cell"], held) if kind == "RNN" else _CELLS[kind](settings, held)
    zeros = bool(settings.get("zero_output_for_mask"))

    def run(sequences: Any, initial_state: Any, mask: Any) -> tuple[Any, States]:
        first = _first(cell, sequences, initial_state)
        ys, states = _over_time(cell, sequences, first, mask, backwards, zeros)
        if shows:
            return f.swapaxes(ys, 0, 1), states
        return ys[-1] if zeros and mask is not None else states[cell.output], states

    return run


def _first(cell: Cell, x: Any, given: Any) -> States:
    if given is None:
        return tuple(f.zeros((x.shape[0], width), cell.element) for width in cell.widths)
    states = tuple(given) if isinstance(given, list | tuple) else (given,)
    if len(states) != len(cell.widths):
        raise GraphError(f"{len(states)} first states for {len(cell.widths)}")
    return states


def _over_time(
    cell: Cell, x: Any, first: States, mask: Any, backwards: bool, zeros: bool
) -> tuple[Any, States]:
    """(outputs [time, batch, width], last states); `zeros` are the outputs of masked steps."""
    if rank_of(x) != 3:
        raise GraphError(f"a recurrence over [batch, time, width], not over {list(x.shape)}")
    if mask is not None and rank_of(mask) != 2:
        raise GraphError(f"a mask of {rank_of(mask)} axes for steps of [batch, time]")
    parts = cell.inputs(f.swapaxes(x, 0, 1))
    kept = None if mask is None else f.expand_dims(f.swapaxes(mask, 0, 1), -1)
    if backwards:
        parts, kept = f.flip(parts, 0), None if kept is None else f.flip(kept, 0)

    def step(states: States, part: Any) -> tuple[States, Any]:
        if mask is None:
            y, states = cell.step(states, part)
            return states, y
        part, counts = part
        y, new = cell.step(states, part)
        other = f.zeros_like(y) if zeros else states[cell.output]
        return tuple(map(lambda a, b: f.where(counts, a, b), new, states)), f.where(
            counts, y, other
        )

    states, ys = scan(step, first, parts if kept is None else (parts, kept))
    return ys, states


_MERGES: dict[Any, Function] = {
    "concat": lambda a, b: f.concatenate([a, b], axis=-1),
    "sum": lambda a, b: f.add(a, b),
    "ave": lambda a, b: f.divide(f.add(a, b), 2),
    "mul": lambda a, b: f.multiply(a, b),
    None: lambda a, b: (a, b),
}


def _directed(entry: Settings) -> str:
    kind = kind_of(entry)
    if kind not in _RECURRENT:
        raise Unsupported(f"a layer {kind[:60]!r} in both directions")
    return kind


@layers("Bidirectional")
def bidirectional(settings: Settings, weights: Weights) -> Function:
    """A layer forwards and another backwards, whose steps are turned round again."""
    entry, other = settings["layer"], settings.get("backward_layer")
    told = entry["config"]
    if other is None:
        turned = {**told, "go_backwards": not told.get("go_backwards")}
        other = {**entry, "config": turned}
    runs = [
        heeding(
            {**part["config"], "class_name": _directed(part)},
            partial(_run, weights=weights.child(name)),
        )
        for part, name in ((entry, "forward_layer"), (other, "backward_layer"))
    ]
    merge = _MERGES[one_of(settings, "merge_mode", _MERGES, "concat")]
    shows, keeps = bool(told.get("return_sequences")), bool(told.get("return_state"))

    def call(
        sequences: Any, initial_state: Any = None, mask: Any = None, sequences_mask: Any = None
    ) -> Any:
        half = len(initial_state) // 2 if initial_state is not None else 0
        given = (initial_state[:half], initial_state[half:]) if half else (None, None)
        (y, states), (z, more) = (run(sequences, first, mask) for run, first in zip(runs, given))
        made = merge(y, f.flip(z, 1) if shows else z)
        parts = made if isinstance(made, tuple) else (made,)
        kept = sequences_mask if mask is None else mask
        if shows and kept is not None:
            parts = tuple(Masked(part, kept) for part in parts)
        parts = (*parts, *states, *more) if keeps else parts
        return parts if len(parts) > 1 else parts[0]

    return call
