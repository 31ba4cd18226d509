"""Do converted weights make the same layer? Models are built on both sides and run.

    gc.nn weights --state_dict--> PyTorch --load_state_dict--> the same bits
                  --keras_weights--> Keras --load_keras-----> the same bits

Each runs on TRIALS random inputs of batch 10 at widths 10 and 100, and must give what graphc does
within RTOL and ATOL.  The interpreter, in f64, judges graphc itself, so that something is compared
where neither framework is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.frontend.compile.decorator import compile as compile_function
from graphc.frontend.trace.tree import flatten
from graphc.learn.nn.attention import MultiHeadAttention
from graphc.learn.nn.keras import keras_weights, load_keras
from graphc.learn.nn.layer import Layer
from graphc.learn.nn.layers import Conv, Dense, Embedding
from graphc.learn.nn.norms import BatchNorm, LayerNorm
from graphc.learn.nn.recurrent import GRU, LSTM
from graphc.learn.nn.state_dict import load_state_dict, state_dict
from graphc.ops.random import random
from graphc.ops.reference.interpreter import interpret

Array = np.ndarray[Any, Any]
Twin = Callable[[Any], Any]  # a framework's module of layers -> the layer
TRIALS, BATCH, WIDTHS = 100, 10, (10, 100)
RTOL, ATOL, EPSILON = 1e-5, 1e-6, 1e-6


@record(frozen=True)
class Pair:
    """A layer, the shape of its input, and its twins; None where a framework has none."""

    name: str
    layer: Layer
    shape: tuple[int, ...]
    torch: Twin | None
    keras: Twin
    words: int = 0  # inputs are integers below it


@record(frozen=True)
class Outcome:
    """One comparison; `told` says what is wrong, or why nothing was compared."""

    name: str
    width: int
    beside: str
    error: float
    told: str = ""
    passed: bool = True


def pairs(width: int) -> Iterator[Pair]:
    """The kinds of layers whose weights are converted."""
    heads, hidden, time = 2 if width == 10 else 4, 7, (BATCH, 3, width)
    flat = (BATCH, width)
    yield Pair(
        *("Dense", Dense(width, 20), flat), *(lambda t: t.Linear(width, 20), lambda k: k.Dense(20))
    )
    yield Pair(
        *("LayerNorm", LayerNorm(width, EPSILON), flat),
        *(lambda t: t.LayerNorm(width, EPSILON), lambda k: k.LayerNormalization(epsilon=EPSILON)),
    )
    yield Pair(
        *("BatchNorm", BatchNorm(width), flat),
        *(lambda t: t.BatchNorm1d(width), lambda k: k.BatchNormalization(epsilon=1e-5)),
    )
    yield Pair(
        *("Embedding", Embedding(width, 8), (BATCH, 5)),
        *(lambda t: t.Embedding(width, 8), lambda k: k.Embedding(width, 8), width),
    )
    yield Pair(
        *("Conv", Conv(3, 4, 3), (BATCH, 3, 6, width)),
        *(lambda t: t.Conv2d(3, 4, 3), lambda k: k.Conv2D(4, 3)),
    )
    yield Pair(
        *("GRU", GRU(width, hidden), time),
        lambda t: t.GRU(width, hidden, batch_first=True),
        lambda k: k.GRU(hidden, return_sequences=True),
    )
    yield Pair(
        *("GRU, reset before", GRU(width, hidden, reset_after=False), time),
        *(None, lambda k: k.GRU(hidden, return_sequences=True, reset_after=False)),
    )
    yield Pair(
        *("LSTM", LSTM(width, hidden), time),
        lambda t: t.LSTM(width, hidden, batch_first=True),
        lambda k: k.LSTM(hidden, return_sequences=True),
    )
    yield Pair(
        *("MultiHeadAttention", MultiHeadAttention(width, heads), time),
        lambda t: t.MultiheadAttention(width, heads, batch_first=True),
        lambda k: k.MultiHeadAttention(heads, width // heads),
    )


def check_conversions(trials: int | None = None) -> Iterator[Outcome]:
    """Every layer at every width beside the interpreter, PyTorch and Keras."""
    for width in WIDTHS:
        for pair in pairs(width):
            yield from _checked(pair, width, trials or TRIALS)


def _checked(pair: Pair, width: int, trials: int) -> Iterator[Outcome]:
    draw = np.random.default_rng(width)
    params = _drawn(pair.layer.init(random.key(width)), draw)
    state = _drawn(pair.layer.state(), draw)
    call = compile_function(lambda params, state, x: pair.layer(params, x, state))
    inputs = [
        draw.integers(0, pair.words, pair.shape, np.int32)
        if pair.words
        else draw.standard_normal(pair.shape).astype(np.float32)
        for _ in range(trials)
    ]
    made = [np.asarray(call(params, state, x)) for x in inputs]
    graph = call.graph(params, state, inputs[0])
    leaves = flatten((params, state))[0]
    for beside, twin in (
        ("interpreter", lambda: _Interpreted(graph, leaves)),
        ("torch", lambda: _Torch(pair, params, state)),
        ("keras", lambda: _Keras(pair, params, state, inputs[0])),
    ):
        if beside != "interpreter" and (absent := _absent(beside)):
            yield Outcome(pair.name, width, beside, 0.0, absent)
        elif beside == "torch" and pair.torch is None:
            yield Outcome(pair.name, width, beside, 0.0, "torch has no such layer")
        else:
            yield _compared(pair, width, beside, twin(), inputs, made)


@cache
def _absent(framework: str) -> str:
    """Why a framework cannot be run beside graphc; empty where it can."""
    if find_spec(framework) is None:
        return f"{framework} is not installed"
    try:
        import_module(framework)
    except ImportError as problem:  # Keras without the backend that it is set to
        return f"{framework} cannot be imported: {problem}"
    return ""


def _compared(
    pair: Pair, width: int, beside: str, twin: Any, inputs: list[Array], made: list[Array]
) -> Outcome:
    wanted = [twin(x) for x in inputs]
    error = max(float(np.abs(a - b).max(initial=0)) for a, b in zip(made, wanted, strict=True))
    close = all(np.allclose(a, b, RTOL, ATOL) for a, b in zip(made, wanted, strict=True))
    told = twin.lost() if close else "DIFFERENT results"
    return Outcome(pair.name, width, beside, error, told, passed=not told)


def _drawn(tree: Any, draw: np.random.Generator) -> Any:
    """Random weights, all of them: biases of zero would hide where they go."""
    if isinstance(tree, dict):
        return {
            name: abs(_drawn(part, draw)) + 0.5 if name == "variance" else _drawn(part, draw)
            for name, part in tree.items()
        }
    if tree is None:
        return None
    scale = 3 * np.sqrt(max(tree.shape[0], 1))  # results are about as large as inputs
    return (draw.standard_normal(tree.shape) / scale).astype(np.float32)


class _Interpreted:
    """graphc's own formulas, summed in f64."""

    def __init__(self, graph: Any, leaves: list[Array]) -> None:
        self.graph, self.leaves = graph, leaves

    def __call__(self, x: Array) -> Array:
        made: Array = interpret(self.graph, [*self.leaves, x], wide=True)[0]
        return made

    def lost(self) -> str:
        return ""


class _Torch:
    """The layer of PyTorch with weights of gc.nn."""

    def __init__(self, pair: Pair, params: Any, state: Any) -> None:
        import torch

        assert pair.torch is not None
        self.torch, self.pair, self.given = torch, pair, (params, state)
        self.weights = state_dict(pair.layer, params, state)
        self.module = pair.torch(torch.nn).eval()
        tensors = {name: torch.from_numpy(np.array(a)) for name, a in self.weights.items()}
        self.module.load_state_dict(tensors, strict=not isinstance(pair.layer, BatchNorm))

    def __call__(self, x: Array) -> Array:
        given = self.torch.from_numpy(x)
        attends = isinstance(self.pair.layer, MultiHeadAttention)
        with self.torch.no_grad():
            made = self.module(*((given,) * 3 if attends else (given,)))
        found: Array = (made[0] if isinstance(made, tuple) else made).numpy()
        return found

    def lost(self) -> str:
        back = state_dict(self.pair.layer, *load_state_dict(self.pair.layer, self.module))
        same = all(np.array_equal(back[name], array) for name, array in self.weights.items())
        return "" if same else "LOST bits on the way back"


class _Keras:
    """The layer of Keras with weights of gc.nn."""

    def __init__(self, pair: Pair, params: Any, state: Any, x: Array) -> None:
        import keras

        self.pair = pair
        self.read = keras.ops.convert_to_numpy
        self.layer = pair.keras(keras.layers)
        self(x)  # which builds it
        self.weights = keras_weights(pair.layer, params, state)
        self.layer.set_weights(self.weights)

    def __call__(self, x: Array) -> Array:
        images = isinstance(self.pair.layer, Conv)
        given = np.moveaxis(x, 1, -1) if images else x
        attends = isinstance(self.pair.layer, MultiHeadAttention)
        made: Array = self.read(self.layer(*((given, given) if attends else (given,))))
        return np.moveaxis(made, -1, 1) if images else made

    def lost(self) -> str:
        loaded = load_keras(self.pair.layer, self.layer.get_weights())
        back = keras_weights(self.pair.layer, *loaded)
        same = all(map(np.array_equal, back, self.weights))
        return "" if same else "LOST bits on the way back"
