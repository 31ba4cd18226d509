"""`gc.Model`: a function with parameters, its loss and its optimiser, trained with `fit`.

    model = gc.Model(
        gc.nn.Sequential(gc.nn.Dense(200, 100), gc.nn.relu, gc.nn.Dense(100, 3)),
        loss=gc.nn.mse,
        optimizer=gc.optim.sgd(1e-3),
    )
    history = model.fit((x, y), epochs=20, validation=(x_test, y_test), checkpoint="run")
    history.plot("loss.png")

A training step is one compiled function: loss, gradients and update, with the parameters and the
state of the optimiser written in place.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import FeedError, GraphError
from graphc.frontend.compile.decorator import compile
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.frontend.transforms.grad import value_and_grad
from graphc.ir.graph import Graph
from graphc.learn.callbacks import Callback, History
from graphc.learn.checkpoints import Checkpoints, load_checkpoint, save_checkpoint
from graphc.learn.data import arrays
from graphc.learn.fitting import Fit, Totals, pair, telling
from graphc.learn.loader import Loader, Stream
from graphc.learn.trees import parameter_count, tree_map
from graphc.ops.random import random

Function = Callable[..., Any]
Forward = Callable[[Any, Any, Any, Any, bool], tuple[Any, Any]]


class Model:
    """A network, what it is measured by, and how it learns.

    network     a layer of gc.nn (or any object with `init(key)` and `apply(params, x, state, key=,
                training=)`), or a plain function of (params, x); a function that has arguments
                `key` or `training` is given them
    params      the parameters: any nesting of arrays, or a function of a random key.  A layer
                makes its own
    loss        function of (result, target) that returns one float
    optimizer   one of gc.optim, or any object with its `init` and `update`
    metrics     functions of (result, target) that return one number, as a list or by name
    seed        of the parameters, of random layers and of the order of the samples
    options     of gc.compile: threads, check_finite, ...

    `params`, `state` (running statistics), `optimizer_state` and `step` are what training changes;
    `network` is what was given.
    A batch that is no pair (x, y) is both input and target.
    """

    @refusing
    def __init__(
        self,
        network: Any,
        params: Any = None,
        *,
        loss: Function,
        optimizer: Any,
        metrics: Mapping[str, Function] | Iterable[Function] = (),
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.network = network
        self.seed = seed
        self.key = np.asarray(random.key(seed))
        self.loss = _function("loss", loss)
        self.metrics = _named(metrics)
        if not hasattr(optimizer, "init") or not hasattr(optimizer, "update"):
            raise GraphError(
                f"optimizer must have init and update, got {optimizer!r}",
                hint="optimizer=gc.optim.adam(1e-3)",
            )
        self.optimizer = optimizer
        self.params = _owned(_initial(network, params, self.key))
        make_state = getattr(network, "state", None)
        self.state = _owned(make_state()) if callable(make_state) else None
        self.optimizer_state = _owned(optimizer.init(self.params))
        self.step = 0
        self.history = History()
        self.epoch = self.epochs = self.position = self.steps_per_epoch = 0
        self.totals = Totals()
        self.stop_training = False
        self._options = options
        self._compile()

    def _compile(self) -> None:
        forward, options = _forward(self.network), self._options
        self._forward = forward
        self._train = compile(
            self._training_step(), donate=("params", "optimizer", "state"), **options
        )
        self._measure = compile(self._measuring_step(), **options)
        self._predict = compile(
            lambda params, state, x: forward(params, x, state, None, False)[0], **options
        )

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("_forward", "_train", "_measure", "_predict")
        return {name: value for name, value in vars(self).items() if name not in compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def __repr__(self) -> str:
        return f"<gc.Model, {self.parameter_count:,} parameters, {self.step} updates>"

    @property
    def parameter_count(self) -> int:
        """How many numbers are trained."""
        return parameter_count(self.params)

    # -------------------------------------------------------------------------------- steps

    def _training_step(self) -> Function:
        def training_step(
            params: Any, optimizer: Any, state: Any, key: Any, step: Any, x: Any, y: Any
        ) -> Any:
            key = random.fold_in(key, step)

            def objective(params: Any) -> Any:
                result, kept = self._forward(params, x, state, key, True)
                return seen(self.loss)(result, y), (result, kept)

            (loss, (result, kept)), gradients = value_and_grad(objective, has_aux=True)(params)
            params, optimizer = seen(self.optimizer.update)(gradients, optimizer, params)
            return params, optimizer, kept, self._figures(loss, result, y)

        return training_step

    def _measuring_step(self) -> Function:
        def measuring_step(params: Any, state: Any, x: Any, y: Any) -> Any:
            result, _ = self._forward(params, x, state, None, False)
            return self._figures(seen(self.loss)(result, y), result, y)

        return measuring_step

    def _figures(self, loss: Any, result: Any, y: Any) -> dict[str, Any]:
        figures = {"loss": loss, **{name: seen(m)(result, y) for name, m in self.metrics.items()}}
        for name, value in figures.items():
            if np.shape(value) != ():
                raise GraphError(
                    f"{name} must be one number, it is an array of shape {list(np.shape(value))}",
                    hint="take its mean",
                )
        return figures

    def train_step(self, x: Any, y: Any) -> dict[str, Any]:
        """One update from one batch; loss and metrics before the update."""
        made = self._train(*self._step_arguments(x, y))
        self.params, self.optimizer_state, self.state, figures = made
        self.step += 1
        return figures  # type: ignore[no-any-return]

    def compile_step(self, x: Any, y: Any) -> None:
        """Compile the update for a batch like this one, without making it."""
        self._train.prepared(self._step_arguments(x, y), {})

    def _step_arguments(self, x: Any, y: Any) -> tuple[Any, ...]:
        step = np.array(self.step)
        return self.params, self.optimizer_state, self.state, self.key, step, x, y

    def training_graph(self) -> Graph:
        """The graph of the latest training step, as it was traced. Raises GraphError before the
        first one.
        """
        newest = self._train._variants.newest
        if newest is None:
            raise GraphError("no training step has been compiled yet", hint="fit, or train_step")
        made = newest.stages[0].value
        assert isinstance(made, Graph)
        return made

    # -------------------------------------------------------------------------------- runs

    @refusing
    def fit(
        self,
        data: Any,
        epochs: int = 1,
        *,
        batch: int = 32,
        steps: int | None = None,
        shuffle: bool = True,
        validation: Any = None,
        callbacks: Sequence[Callback | Callable[[int, dict[str, float]], Any]] = (),
        checkpoint: str | os.PathLike[str] | Checkpoints | None = None,
        resume: bool = True,
        verbose: int = 1,
    ) -> History:
        """Train, and return the mean loss and metrics of each epoch.

        data         a loader of gc.data, a dataset, or arrays (x, y), read in batches of `batch`;
                     or batches: a torch DataLoader, an iterable, a function that returns one
        steps        batches per epoch, where `data` is batches; a generator needs them for more
                     than one epoch
        validation   the same, measured after each epoch: the figures that begin with "val_"
        callbacks    gc.Callback objects, or functions of (epoch, logs)
        checkpoint   a folder, or gc.Checkpoints; a folder gets one after each epoch
        resume       go on from the newest checkpoint: the run ends as if it had never stopped
        verbose      0 quiet, 1 a progress bar on a terminal, 2 a line per epoch, 3 a progress bar
                     under the curve of the loss, on a terminal

        `epochs` counts those before a resumed checkpoint.  Raises FeedError for data that does not
        fit, CheckpointError for a checkpoint of another model.
        """
        loader = _loader(data, batch, shuffle, self.seed, steps)
        measured = None if validation is None else _loader(validation, batch)
        run = Fit(self, loader, measured, callbacks, checkpoint, verbose)
        return run.run(epochs, resume)

    @refusing
    def evaluate(self, data: Any, *, batch: int = 32) -> dict[str, float]:
        """Mean loss and metrics over data, as `fit` takes it."""
        totals = Totals()
        for rows in _loader(data, batch).rewound():
            x, y = pair(rows)
            with telling(rows):
                figures = self._measure(self.params, self.state, x, y)
            totals.add(figures, rows)
        return totals.means()

    @refusing
    def predict(self, x: Any, *, batch: int = 256) -> Any:
        """The results for samples x (arrays, or a loader of inputs), one after the other."""
        made = []
        for rows in _loader(x, batch).rewound():
            with telling(rows, paired=False):
                made.append(self._predict(self.params, self.state, rows))
        columns = zip(*(flatten(result)[0] for result in made))
        return unflatten(flatten(made[0])[1], [np.concatenate(column) for column in columns])

    def learning_rate(self) -> float:
        """The rate of the last update. Raises GraphError where the optimiser does not tell."""
        if not hasattr(self.optimizer, "scalars"):
            raise GraphError(f"{type(self.optimizer).__name__} does not tell its learning rate")
        return float(np.asarray(self.optimizer.scalars(max(0, self.step - 1))[0]))

    # -------------------------------------------------------------------------------- weights

    def weights(self) -> dict[str, Any]:
        """What predictions depend on: {"params": ..., "state": ...}; no copy."""
        return {"params": self.params, "state": self.state}

    def set_weights(self, weights: dict[str, Any]) -> None:
        """Take over what `weights` gave."""
        self.params, self.state = _owned(weights["params"]), _owned(weights["state"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the weights as a .safetensors file. Raises CheckpointError when it cannot."""
        save_checkpoint(path, self.weights())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read the weights of `save`. Raises CheckpointError for those of another model."""
        self.set_weights(load_checkpoint(path, self.weights())[0])


# ------------------------------------------------------------------------------------ parts


def _loader(
    data: Any, batch: int, shuffle: bool = False, seed: int = 0, steps: int | None = None
) -> Loader:
    if isinstance(data, Loader):
        return data
    is_dataset = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not is_dataset and (hasattr(data, "__iter__") or callable(data)):
        return Stream(data, steps)
    if steps is not None:
        raise FeedError("steps goes with batches", hint="batch= says how large batches are")
    is_tree = hasattr(data, "__array__") or isinstance(data, dict | list | tuple)
    if is_tree:
        return arrays(data, batch, shuffle=shuffle, seed=seed)
    return Loader(data, batch, shuffle=shuffle, seed=seed)


def _owned(tree: Any) -> Any:
    """Copies of the arrays: a training step writes over them."""
    return tree_map(np.array, tree)


def _initial(network: Any, params: Any, key: Any) -> Any:
    if params is None:
        params = getattr(network, "init", None)
        if params is None:
            raise FeedError(
                "a model of a plain function needs its parameters",
                hint="gc.Model(apply, params, ...): arrays, or a function of a random key",
            )
    return params(key) if callable(params) else params


def _forward(network: Any) -> Forward:
    """The network as a function of (params, x, state, key, training) that returns (y, state)."""
    if hasattr(network, "apply"):
        return lambda params, x, state, key, training: seen(network.apply)(
            params, x, state, key=key, training=training
        )
    wanted = inspect.signature(_function("network", network)).parameters

    def forward(params: Any, x: Any, state: Any, key: Any, training: bool) -> tuple[Any, Any]:
        given = {"key": key, "training": training}
        return seen(network)(params, x, **{k: v for k, v in given.items() if k in wanted}), state

    return forward


def _function(what: str, value: Any) -> Function:
    if not callable(value):
        raise GraphError(
            f"{what} must be a function, got {value!r:.80}",
            hint="gc.nn has losses: gc.nn.mse, gc.nn.cross_entropy" if what == "loss" else None,
        )
    return value  # type: ignore[no-any-return]


def _named(metrics: Mapping[str, Function] | Iterable[Function]) -> dict[str, Function]:
    if isinstance(metrics, Mapping):
        named = dict(metrics)
    else:
        named = {getattr(metric, "__name__", ""): metric for metric in metrics}
    for name, metric in named.items():
        if not name.isidentifier() or name == "loss" or name.startswith("val_"):
            raise GraphError(
                f"a metric cannot be called {name!r}", hint='metrics={"name": function, ...}'
            )
        _function(f"metric {name}", metric)
    return named
