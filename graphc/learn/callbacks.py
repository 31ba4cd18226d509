"""What a training run calls on its way, and the history it leaves."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import GraphError
from graphc.frontend.summaries.recorder import Recorder, to
from graphc.frontend.summaries.writers import plain
from graphc.learn.chart import drawn
from graphc.learn.trees import tree_map
from graphc.runtime.files.files import write_atomically


class Callback:
    """Base of callbacks: methods that `Model.fit` calls; each does nothing unless it is overridden.

    A callback stops the run with `model.stop_training = True`.  One that remembers something gives
    it to the checkpoints with `state` (JSON) and `arrays` (a tree whose structure stays the same),
    and gets it back with `restore`.
    """

    def on_fit_begin(self, model: Any) -> None:
        """Before the first epoch, and before a checkpoint is restored."""

    def on_epoch_begin(self, model: Any, epoch: int) -> None:
        """Before the first batch of an epoch; epochs count from 0."""

    def on_step_end(self, model: Any, step: int, logs: Mapping[str, float]) -> None:
        """After an update; `logs` holds loss and metrics of its batch."""

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        """After an epoch and its validation; what is added to `logs` goes into the history."""

    def on_fit_end(self, model: Any) -> None:
        """After the last epoch, also when an error ends the run."""

    def state(self) -> Any:
        """What is to be remembered, as JSON."""
        return None

    def arrays(self) -> Any:
        """What is to be remembered, as a tree of arrays."""
        return None

    def restore(self, state: Any, arrays: Any) -> None:
        """Go on from what `state` and `arrays` gave."""


class OnEpochEnd(Callback):
    """A function of (epoch, logs) as a callback."""

    def __init__(self, function: Callable[[int, dict[str, float]], Any]) -> None:
        self._function = function

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        self._function(epoch, logs)


def as_callback(value: Any) -> Callback:
    """A callback as it is, a function as `OnEpochEnd`. Raises GraphError for anything else."""
    if isinstance(value, Callback):
        return value
    if callable(value) and not isinstance(value, type):
        return OnEpochEnd(value)
    raise GraphError(
        f"a callback is a gc.Callback or a function of (epoch, logs), not {value!r}",
        hint="write gc.EarlyStopping(...), with its options" if isinstance(value, type) else None,
    )


class Monitor(Callback):
    """Watches a figure of each epoch, and says which epoch was the best.

    monitor     the figure, by the name it has in the history
    min_delta   how much better counts as progress
    mode        "min" or "max"; by default "max" for names with "accuracy" in them
    """

    @refusing
    def __init__(self, monitor: str, min_delta: float, mode: str | None) -> None:
        if mode not in (None, "min", "max"):
            raise GraphError(f"mode is 'min' or 'max', not {mode!r}")
        self.monitor = monitor
        self.min_delta = abs(min_delta)
        self.sign = -1.0 if mode == "max" or (mode is None and "accuracy" in monitor) else 1.0

    def on_fit_begin(self, model: Any) -> None:
        self.best: float | None = None
        self.best_epoch = -1

    def improved(self, epoch: int, logs: Mapping[str, float]) -> bool:
        """Whether an epoch is the best so far. Raises GraphError for a figure that it lacks."""
        if self.monitor not in logs:
            raise GraphError(
                f"{type(self).__name__} watches {self.monitor!r}; an epoch has {', '.join(logs)}",
                hint="fit(..., validation=...) adds the figures that begin with val_",
            )
        found = self.sign * logs[self.monitor]
        is_best = not np.isnan(found) and (self.best is None or found < self.best - self.min_delta)
        if is_best:
            self.best, self.best_epoch = found, epoch
        return bool(is_best)


class EarlyStopping(Monitor):
    """Stops when a figure has not become better for some epochs in a row.

    monitor        the figure, by the name it has in the history
    patience       how many epochs in a row without progress end the run (0 means 1, as in Keras)
    min_delta      how much better counts as progress
    mode           "min" or "max"; by default "max" for names with "accuracy" in them
    restore_best   leaves the model with the parameters of its best epoch
    """

    @refusing
    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 0,
        min_delta: float = 0.0,
        mode: str | None = None,
        restore_best: bool = False,
    ) -> None:
        super().__init__(monitor, min_delta, mode)
        self.patience = patience
        self.restore_best = restore_best

    def on_fit_begin(self, model: Any) -> None:
        super().on_fit_begin(model)
        self.waited = 0
        self._kept = tree_map(np.copy, model.weights()) if self.restore_best else None

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        if self.improved(epoch, logs):
            self.waited = 0
            if self.restore_best:
                self._kept = tree_map(np.copy, model.weights())
            return
        self.waited += 1
        if self.waited >= self.patience:
            model.stop_training = True

    def on_fit_end(self, model: Any) -> None:
        if self.restore_best and self.best is not None:
            model.set_weights(self._kept)

    def state(self) -> Any:
        return [self.best, self.best_epoch, self.waited]

    def arrays(self) -> Any:
        return self._kept

    def restore(self, state: Any, arrays: Any) -> None:
        self.best, self.best_epoch, self.waited = state
        self._kept = arrays


class SaveBest(Monitor):
    """Saves the weights whenever a figure is the best so far; `Model.load` reads them.

    path        a .safetensors file
    monitor     the figure, by the name it has in the history
    min_delta   how much better counts as progress
    mode        "min" or "max"; by default "max" for names with "accuracy" in them
    """

    @refusing
    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str = "val_loss",
        min_delta: float = 0.0,
        mode: str | None = None,
    ) -> None:
        super().__init__(monitor, min_delta, mode)
        self.path = Path(path)

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        if self.improved(epoch, logs):
            model.save(self.path)

    def state(self) -> Any:
        return [self.best, self.best_epoch]

    def restore(self, state: Any, arrays: Any) -> None:
        self.best, self.best_epoch = state


class LearningRateLogger(Callback):
    """Adds `learning_rate`, the rate of the epoch's last update, to the history."""

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        logs["learning_rate"] = model.learning_rate()


class _Logger(Callback):
    """Writes the history to a file after every epoch, whole or not at all."""

    @refusing
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        rows = [*model.history.rows(), {"epoch": epoch, **logs}]
        write_atomically(self.path, [self.text(rows).encode()])

    def text(self, rows: Sequence[Mapping[str, float]]) -> str:
        """What the file holds."""
        raise NotImplementedError


class CSVLogger(_Logger):
    """Writes the history to a CSV file after every epoch."""

    def text(self, rows: Sequence[Mapping[str, float]]) -> str:
        made = io.StringIO()
        writer = csv.DictWriter(made, list(rows[-1]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        return made.getvalue()


class JSONLogger(_Logger):
    """Writes the history after every epoch as lines of JSON, one per epoch.

    A number that JSON has none for is the text "nan", "inf" or "-inf".
    """

    def text(self, rows: Sequence[Mapping[str, float]]) -> str:
        lines = ({name: plain(value) for name, value in row.items()} for row in rows)
        return "".join(f"{json.dumps(line)}\n" for line in lines)


class TensorBoard(Callback):
    """Records the run for TensorBoard: loss and metrics of steps and epochs, the graph of the
    training step, and what the network itself gives to `gc.summary`.

    places   a folder for TensorBoard, or what else `gc.summary.to` takes: a .jsonl file, say
    every    steps that are recorded; those between run the kernels of a model without summaries

    The figures of steps are called "step/loss", those of epochs "epoch/loss", "epoch/val_loss".
    """

    @refusing
    def __init__(self, *places: Any, every: int = 10) -> None:
        self._places, self._every = places, every
        self._recorder: Recorder | None = None

    def on_fit_begin(self, model: Any) -> None:
        self._recorder = to(*self._places, every=self._every).__enter__()
        self._has_graph = False

    def on_epoch_begin(self, model: Any, epoch: int) -> None:
        assert self._recorder is not None
        self._recorder.step = model.step

    def on_step_end(self, model: Any, step: int, logs: Mapping[str, float]) -> None:
        recorder = self._recorder
        assert recorder is not None
        if recorder.is_on:
            for name, value in logs.items():
                recorder.scalar(f"step/{name}", value)
            if not self._has_graph:
                self._has_graph = True
                recorder.take("graph", "training_step", model.training_graph())
        recorder.step = step

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        assert self._recorder is not None
        for name, value in logs.items():
            self._recorder.scalar(f"epoch/{name}", value, epoch)

    def on_fit_end(self, model: Any) -> None:
        if self._recorder is not None:
            self._recorder.__exit__()
            self._recorder = None


class LossCurve(Callback):
    """Keeps a picture of the history on the disk, by `History.plot`: at most one a second, and one
    in the end.  `fit(verbose=3)` draws the curve in the terminal.
    """

    @refusing
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._plotted = -math.inf

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        is_last = model.stop_training or epoch + 1 == model.epochs
        if is_last or time.monotonic() - self._plotted > 1:
            model.history.with_epoch(logs).plot(self.path)
            self._plotted = time.monotonic()


class Callbacks:
    """Several callbacks as one."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = list(callbacks)
        # A step may take microseconds: only those that listen to steps are called for each.
        self._steps = [c for c in self._callbacks if _has_own(c, "on_step_end")]
        # A run may go on with loggers that it did not have before.
        self._remembering = [c for c in self._callbacks if _has_own(c, "state", "arrays")]

    def each(self, event: str, *given: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event)(*given)

    def step_end(self, model: Any, step: int, logs: Mapping[str, float]) -> None:
        for callback in self._steps:
            callback.on_step_end(model, step, logs)

    def names(self) -> list[str]:
        return [f"{k} {type(c).__name__}" for k, c in enumerate(self._remembering)]

    def state(self) -> list[Any]:
        return [callback.state() for callback in self._remembering]

    def arrays(self) -> dict[str, Any]:
        return {name: c.arrays() for name, c in zip(self.names(), self._remembering)}

    def restore(self, state: Sequence[Any], arrays: Mapping[str, Any]) -> None:
        for name, callback, own in zip(self.names(), self._remembering, state):
            callback.restore(own, arrays[name])


def _has_own(callback: Callback, *methods: str) -> bool:
    return any(getattr(type(callback), m) is not getattr(Callback, m) for m in methods)


class History(dict[str, list[float]]):
    """The figures of each epoch: {"loss": [...], "val_loss": [...], ...}."""

    def add(self, logs: Mapping[str, float]) -> None:
        """Append the figures of an epoch, by name."""
        for name, value in logs.items():
            self.setdefault(name, []).append(float(value))

    def rows(self) -> list[dict[str, float]]:
        """The same, epoch by epoch."""
        epochs = max(map(len, self.values()), default=0)
        return [
            {"epoch": k, **{name: values[k] for name, values in self.items() if k < len(values)}}
            for k in range(epochs)
        ]

    def with_epoch(self, logs: Mapping[str, float]) -> History:
        """A copy with one more epoch."""
        made = History({name: list(values) for name, values in self.items()})
        made.add(logs)
        return made

    def draw(self, name: str = "loss", width: int = 72, height: int = 12) -> str:
        """The curve of a figure, and of its validation, as text of so many columns and rows.

        Figures that are all positive and differ by more than a factor of 100 have a logarithmic
        axis.  Raises GraphError for a figure that is not there.
        """
        if name not in self:
            raise GraphError(f"the history has no {name!r}", hint=f"it has {', '.join(self)}")
        curves = {label: self[label] for label in (name, f"val_{name}") if label in self}
        return drawn(curves, width, height)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Save a picture: one panel per figure, its validation beside it. Needs matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise GraphError("a plot needs matplotlib", hint="pip install matplotlib") from None
        names = [name for name in self if not name.startswith("val_")]
        if not names:
            raise GraphError("there is no epoch to plot yet")
        figure = Figure(figsize=(4.5 * len(names), 3.2), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names):
            for label in (name, f"val_{name}"):
                if label in self:
                    values = self[label]
                    axes.plot(range(1, len(values) + 1), values, marker=".", label=label)
            axes.set(xlabel="epoch", title=name)
            axes.grid(alpha=0.3)
            axes.legend()
        figure.savefig(path, dpi=120)
