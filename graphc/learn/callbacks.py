"""What a training run calls on its way, and the history it leaves."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.learn.trees import tree_map


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


class EarlyStopping(Callback):
    """Stops when a figure has not become better for some epochs in a row.

    monitor        the figure, by the name it has in the history
    patience       how many epochs in a row without progress end the run (0 means 1, as in Keras)
    min_delta      how much better counts as progress
    mode           "min" or "max"; by default "max" for names with "accuracy" in them
    restore_best   leaves the model with the parameters of its best epoch
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 0,
        min_delta: float = 0.0,
        mode: str | None = None,
        restore_best: bool = False,
    ) -> None:
        if mode not in (None, "min", "max"):
            raise GraphError(f"mode is 'min' or 'max', not {mode!r}")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = abs(min_delta)
        self.sign = -1.0 if mode == "max" or (mode is None and "accuracy" in monitor) else 1.0
        self.restore_best = restore_best

    def on_fit_begin(self, model: Any) -> None:
        self.best: float | None = None
        self.best_epoch = -1
        self.waited = 0
        self._kept = tree_map(np.copy, model.weights()) if self.restore_best else None

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        if self.monitor not in logs:
            raise GraphError(
                f"early stopping watches {self.monitor!r}; an epoch has {', '.join(logs)}",
                hint="fit(..., validation=...) adds the figures that begin with val_",
            )
        found = self.sign * logs[self.monitor]
        is_number = not np.isnan(found)
        if is_number and (self.best is None or found < self.best - self.min_delta):
            self.best, self.best_epoch, self.waited = found, epoch, 0
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


class LearningRateLogger(Callback):
    """Adds `learning_rate`, the rate of the epoch's last update, to the history."""

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        logs["learning_rate"] = model.learning_rate()


class CSVLogger(Callback):
    """Writes the history to a CSV file after every epoch."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        rows = [*model.history.rows(), {"epoch": epoch, **logs}]
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[-1]), extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


class Callbacks:
    """Several callbacks as one."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = list(callbacks)
        # A step may take microseconds: only those that listen to steps are called for each.
        self._steps = [c for c in self._callbacks if _listens(c)]

    def each(self, event: str, *given: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event)(*given)

    def step_end(self, model: Any, step: int, logs: Mapping[str, float]) -> None:
        for callback in self._steps:
            callback.on_step_end(model, step, logs)

    def names(self) -> list[str]:
        return [f"{k} {type(c).__name__}" for k, c in enumerate(self._callbacks)]

    def state(self) -> list[Any]:
        return [callback.state() for callback in self._callbacks]

    def arrays(self) -> dict[str, Any]:
        return {name: c.arrays() for name, c in zip(self.names(), self._callbacks)}

    def restore(self, state: Sequence[Any], arrays: Mapping[str, Any]) -> None:
        for name, callback, own in zip(self.names(), self._callbacks, state):
            callback.restore(own, arrays[name])


def _listens(callback: Callback) -> bool:
    return type(callback).on_step_end is not Callback.on_step_end


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
