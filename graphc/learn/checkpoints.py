"""`gc.Checkpoints`: what a run needs to go on, saved while it runs.

    with gc.Checkpoints("run", every_steps=100, keep=3) as checkpoints:
        last = checkpoints.latest({"params": params, "state": state})
        ...
        checkpoints.offer(step, {"params": params, "state": state}, {"epoch": epoch})

A tree is any nesting of dicts, lists, tuples and dataclasses whose leaves are arrays, numbers or
variables; a variable of the template is assigned what was saved.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import CheckpointError
from graphc.frontend.session.variable import Variable
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unflatten, unique_names
from graphc.runtime.files.checkpoint import (
    Arrays,
    Clock,
    Folder,
    Writer,
    json_text,
    load_arrays,
    save_arrays,
    snapshot,
)

Path_ = str | os.PathLike[str]
_MOST_SHOWN = 6


@refusing
def save_checkpoint(path: Path_, tree: Any, values: Any = None) -> None:
    """Write a tree of arrays and JSON values to one .safetensors file, whole or not at all.

    Raises CheckpointError for a leaf that is no array and when the disk does not take the file.
    """
    save_arrays(Path(path), snapshot(_named(tree)), json_text(values))


@refusing
def load_checkpoint(path: Path_, template: Any = None) -> tuple[Any, Any]:
    """The tree and the JSON values of a file; without a template the tree is {name: array}.

    Raises CheckpointError for a file that is damaged or whose names, shapes or dtypes are not
    those of the template (arrays or specs).
    """
    arrays, values = load_arrays(Path(path))
    return (arrays if template is None else restored(arrays, template)), values


def _named(tree: Any) -> dict[str, Any]:
    leaves, shape = flatten(tree)
    return dict(zip(_names(shape), leaves))


def _names(tree: TreeDef) -> Sequence[str]:
    return unique_names([name or "value" for name in leaf_names(tree)])


def restored(arrays: Arrays, template: Any) -> Any:
    """The arrays in the structure of a template. Raises CheckpointError where they do not fit."""
    leaves, tree = flatten(template)
    wanted = dict(zip(_names(tree), leaves))
    wrong = [f"{name} is missing" for name in wanted if name not in arrays]
    wrong += [f"{name} is not wanted" for name in arrays if name not in wanted]
    for name in wanted.keys() & arrays.keys():
        have, want = _kind(arrays[name]), _kind(wanted[name])
        if have != want:
            wrong.append(f"{name} is {have}, wanted is {want}")
    if wrong:
        more = (f"and {len(wrong) - _MOST_SHOWN} more",) if len(wrong) > _MOST_SHOWN else ()
        raise CheckpointError(
            "the checkpoint does not fit what it is restored to",
            details=(*sorted(wrong)[:_MOST_SHOWN], *more),
            hint="was it saved by another version of the model or with another optimiser?",
        )
    return unflatten(tree, [_like(leaf, arrays[name]) for name, leaf in wanted.items()])


def _kind(leaf: Any) -> str:
    """dtype and shape of an array, a spec or a number."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    element = np.dtype(getattr(leaf.dtype, "numpy", leaf.dtype))
    return f"{element.name}{[int(extent) for extent in leaf.shape]}"


def _like(leaf: Any, array: np.ndarray[Any, Any]) -> Any:
    """Numbers come back as numbers, and variables as they are, with the value that was saved."""
    if isinstance(leaf, Variable):
        leaf.assign(array)
        return leaf
    if isinstance(leaf, bool | int | float | complex):
        return type(leaf)(array.item())
    return array[()] if isinstance(leaf, np.generic) else array


class Checkpoint(NamedTuple):
    """A checkpoint that was read back."""

    step: int
    tree: Any
    values: Any
    path: Path


class Checkpoints:
    """Saves a run every so many steps or seconds, in the background, and finds the newest good one.

    folder         one file for each step that is kept; it is created if need be
    every_steps    `offer` saves once so many steps have passed since the last checkpoint
    every_seconds  and once so many seconds have passed
    keep           how many checkpoints are kept
    behind         how many steps may be taken while a checkpoint is written: `offer` waits for one
                   that was begun so many steps ago, so that a process that is killed at step 57
                   goes on from 50.  None: until the next checkpoint is due

    Arrays are copied before `save` returns, so that training may go on and write to them.  One
    checkpoint is written at a time: `save` waits for the one before.  An error of a write (a full
    disk) is raised by the next call; the checkpoints written before it stay as they are.
    """

    @refusing
    def __init__(
        self,
        folder: Path_,
        *,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int = 3,
        behind: int | None = 1,
    ) -> None:
        if behind is not None and (type(behind) is not int or behind < 0):
            raise CheckpointError(
                f"behind must be a number of steps that is not negative, or None, got {behind!r}"
            )
        self._behind = behind
        self._clock = Clock(every_steps, every_seconds)
        self._folder = Folder(folder, keep)
        self._writer = Writer()
        self._copies: Arrays = {}

    @property
    def folder(self) -> Path:
        """Where the checkpoints lie."""
        return self._folder.path

    @property
    def is_timed(self) -> bool:
        """Whether `every_steps` or `every_seconds` was given."""
        return self._clock.every_steps is not None or self._clock.every_seconds is not None

    def steps(self) -> list[int]:
        """The steps that have a checkpoint."""
        return self._folder.steps()

    def clear(self) -> None:
        """Remove every checkpoint of the folder: the next run starts over."""
        self._writer.wait()
        self._folder.clear()
        self._clock.restart(0)

    def due(self, step: int) -> bool:
        """Whether `offer` would save this step."""
        return self._clock.due(step)

    def passed(self, step: int) -> None:
        """Say that a step has been taken: a checkpoint that was begun `behind` steps before it is
        on the disk once this returns. Raises the error of an earlier write."""
        if self._behind is not None and step >= self._clock.last_step + self._behind:
            self._writer.wait()

    def offer(self, step: int, tree: Any, values: Any = None) -> bool:
        """Save if a checkpoint is due; whether it was. Raises the error of an earlier write."""
        self.passed(step)
        if not self.due(step):
            return False
        self.save(step, tree, values)
        return True

    def save(self, step: int, tree: Any, values: Any = None) -> None:
        """Copy the tree and write it in the background. Raises the error of an earlier write."""
        self._writer.wait()
        step = self._folder.checked(step)
        self._clock.restart(step)
        text = json_text(values)
        arrays = self._copies = snapshot(_named(tree), self._copies)
        self._writer.start(lambda: self._folder.save(step, arrays, text))
        self.passed(step)

    def latest(self, template: Any = None) -> Checkpoint | None:
        """The newest good checkpoint in the structure of a template, None in an empty folder.

        Damaged files are passed over with a warning.  Raises CheckpointError when every file is
        damaged and when the newest good one does not fit the template.
        """
        self._writer.wait()
        found = self._folder.latest()
        if found is None:
            return None
        self._clock.restart(found.step)
        tree = found.arrays if template is None else restored(found.arrays, template)
        return Checkpoint(found.step, tree, found.values, found.path)

    def wait(self) -> None:
        """Return once every checkpoint is on the disk. Raises the error of an earlier write."""
        self._writer.wait()

    def close(self) -> None:
        """`wait`, and give the memory of the copies back."""
        self._copies = {}
        self._writer.wait()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CheckpointError:
            if error is None:  # an error of the block itself is not hidden by this one
                raise
