"""A run of `Model.fit`: epochs, validation, callbacks and checkpoints.

A checkpoint is taken between two updates and holds all that the rest of the run depends on:
parameters, state of the optimiser and of the network, random key, number of updates, position of
the loader, the sums of the epoch so far, the history, and what the callbacks remember.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from graphc.errors import CheckpointError, FeedError, TraceError, TypeRuleError
from graphc.frontend.summaries.recorder import paused
from graphc.frontend.trace.tree import flatten
from graphc.learn.callbacks import Callbacks, History, as_callback
from graphc.learn.checkpoints import Checkpoints
from graphc.learn.loader import Loader, Stream
from graphc.learn.progress import Progress

if TYPE_CHECKING:
    from graphc.learn.model import Model


def pair(batch: Any) -> tuple[Any, Any]:
    """(input, target) of a batch."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    return batch, batch


@contextmanager
def telling(batch: Any, paired: bool = True) -> Iterator[None]:
    """Errors of a step say what its batch is, where that is not what steps take: a pair (x, y), or
    inputs alone (`paired=False`).
    """
    try:
        yield
    except (TraceError, TypeRuleError) as error:
        is_pair = pair(batch)[1] is not batch
        if is_pair != paired and isinstance(batch, dict | list | tuple):
            held = f" of {len(batch)}" if isinstance(batch, list | tuple) else ""
            names = f" with {', '.join(map(str, batch))}" if isinstance(batch, dict) else ""
            said = f"the batch is a {type(batch).__name__}{held}{names}"
            meant = "no pair (x, y), and so is both input and target" if paired else "no input x"
            error.details = (*error.details, f"{said}: {meant}")
        raise


class Totals:
    """Sums of the figures of batches, each weighted with its number of samples."""

    def __init__(self, count: int = 0, sums: Mapping[str, float] = {}) -> None:
        self.count = count
        self.sums = dict(sums)

    def add(self, figures: Mapping[str, Any], batch: Any) -> None:
        rows = len(flatten(batch)[0][0])
        self.count += rows
        for name, value in figures.items():
            self.sums[name] = self.sums.get(name, 0.0) + rows * float(value)

    def means(self) -> dict[str, float]:
        return {name: value / self.count for name, value in self.sums.items()}


class Fit:
    """One call of `Model.fit`."""

    def __init__(
        self,
        model: Model,
        loader: Loader,
        validation: Loader | None,
        callbacks: Sequence[Any],
        checkpoint: str | os.PathLike[str] | Checkpoints | None,
        verbose: int,
    ) -> None:
        self.model = model
        self.loader = loader
        self.validation = validation
        self.callbacks = Callbacks([*map(as_callback, callbacks), Progress(verbose)])
        self.checkpoints: Checkpoints | None = (
            Checkpoints(checkpoint) if isinstance(checkpoint, str | os.PathLike) else checkpoint
        )

    def run(self, epochs: int, resume: bool) -> History:
        if type(epochs) is not int or epochs < 0:
            raise FeedError(
                f"epochs must be a whole number of at least 0, got {type(epochs).__name__}"
                if hasattr(epochs, "shape")
                else f"epochs must be a whole number of at least 0, got {epochs!r:.80}",
                hint="fit((x, y), epochs=10)" if hasattr(epochs, "__len__") else None,
            )
        model = self.model
        model.epoch, model.epochs, model.steps_per_epoch = 0, epochs, len(self.loader)
        model.history, model.totals, model.stop_training = History(), Totals(), False
        self.callbacks.each("on_fit_begin", model)
        if self.checkpoints is not None:
            self._resume(self.checkpoints, resume)
        try:
            with self.checkpoints or nullcontext():
                while model.epoch < epochs and not model.stop_training:
                    self._epoch()
        finally:
            self.callbacks.each("on_fit_end", model)
        return model.history

    def _epoch(self) -> None:
        model = self.model
        model.position = self.loader.index if model.totals.count else 0
        self.callbacks.each("on_epoch_begin", model, model.epoch)
        for batch in self.loader:
            self._step(batch)
            if model.stop_training:
                break
        logs = model.totals.means()
        if self.validation is not None:
            with paused():
                found = model.evaluate(self.validation)
            logs |= {f"val_{name}": value for name, value in found.items()}
        self.callbacks.each("on_epoch_end", model, model.epoch, logs)
        model.history.add(logs)
        model.epoch += 1
        model.totals = Totals()
        is_last = model.stop_training or model.epoch == model.epochs
        if self.checkpoints is not None and (is_last or not self.checkpoints.is_timed):
            self._save(self.checkpoints)

    def _step(self, batch: Any) -> None:
        model = self.model
        with telling(batch):
            figures = model.train_step(*pair(batch))
        model.totals.add(figures, batch)
        model.position = self.loader.index
        self.callbacks.step_end(model, model.step, figures)
        if self.checkpoints is not None:
            self.checkpoints.passed(model.step)
            if self.checkpoints.due(model.step):
                self._save(self.checkpoints)

    # -------------------------------------------------------------------------------- checkpoints

    def _tree(self) -> dict[str, Any]:
        model = self.model
        return {
            "params": model.params,
            "state": model.state,
            "optimizer": model.optimizer_state,
            "key": model.key,
            "callbacks": self.callbacks.arrays(),
        }

    def _values(self) -> dict[str, Any]:
        model = self.model
        return {
            "step": model.step,
            "epoch": model.epoch,
            "stopped": model.stop_training,
            "totals": [model.totals.count, model.totals.sums],
            "history": model.history,
            "loader": self.loader.state(),
            "names": self.callbacks.names(),
            "callbacks": self.callbacks.state(),
        }

    def _save(self, checkpoints: Checkpoints) -> None:
        checkpoints.save(self.model.step, self._tree(), self._values())

    def _resume(self, checkpoints: Checkpoints, resume: bool) -> None:
        if not resume:
            if checkpoints.steps():
                raise CheckpointError(
                    f"{checkpoints.folder} holds the checkpoints of another run",
                    hint="resume=True goes on with it; for a new run give a new folder",
                )
            return
        found = checkpoints.latest(self._tree())
        if found is not None:
            self._restore(found.tree, found.values)
            self._compile_as_begun()

    def _compile_as_begun(self) -> None:
        """Compile for the batch that the run began with: what is compiled for one size and what
        serves all others may add in another order, and a size shall have the bits that it had."""
        if not isinstance(self.loader, Stream):
            self.model.compile_step(*pair(next(iter(self.loader.rewound()))))

    def _restore(self, tree: dict[str, Any], values: dict[str, Any]) -> None:
        model = self.model
        if not isinstance(values, dict) or values.get("names") != self.callbacks.names():
            raise CheckpointError(
                "the checkpoint was saved with other callbacks",
                hint="resume with the callbacks that the run began with",
            )
        self.loader.restore(values["loader"])
        self.callbacks.restore(values["callbacks"], tree["callbacks"])
        model.params, model.state = tree["params"], tree["state"]
        model.optimizer_state, model.key = tree["optimizer"], tree["key"]
        model.step, model.epoch = values["step"], values["epoch"]
        model.totals = Totals(*values["totals"])
        model.history = History(values["history"])
        model.stop_training = values["stopped"]
