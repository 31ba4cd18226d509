"""`gc.summary`: what a model says of itself while it runs, and who keeps it.

    with gc.summary.to("runs/1", every=10) as log:
        for log.step in range(1000):
            params = train(params, x, y)          # which calls gc.summary.scalar("loss", loss) ...

Without a recorder none of it is traced: the kernels are those of a model without summaries.  With
`every=10` nine of ten steps run these.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError, RunError, TraceError
from graphc.frontend.summaries.writers import CSV, JSONL, Entry, Histogram, Picture, Writer
from graphc.frontend.trace.recording import is_recording
from graphc.ir.graph import Graph
from graphc.ir.op import OPS
from graphc.ir.user_lines import locate
from graphc.ops.control.host_calls import recorders
from graphc.ops.record.value import current, emit

MOST_IMAGES = 3  # of a batch


# ---------------------------------------------------------------------------------- in the model


def scalar(tag: str, value: Any, *, step: Any = None) -> None:
    """Record one number, whenever this is reached while a recorder is on.

    tag     its name; names with "/" are grouped by what stands before it
    value   a real number or an array of no dimensions
    step    the whole number it belongs to, traced or not; else the recorder's `step`

    Raises TypeRuleError for a value that is not one real number.
    """
    _record("scalar", tag, (value,), step)


def histogram(tag: str, value: Any, *, step: Any = None) -> None:
    """Record how the numbers of an array of any shape are spread; see `scalar`."""
    _record("histogram", tag, (value,), step)


def image(tag: str, value: Any, *, step: Any = None) -> None:
    """Record an image, [height, width] or [height, width, channels], or the first of a batch.

    Integers are 0 to 255, floats 0 to 1; the channels are 1, 3 (RGB) or 4 (RGBA).  Of
    [batch, height, width, channels] the first three are kept.  See `scalar`.
    """
    _record("image", tag, (value,), step)


def text(tag: str, text: str, *values: Any, step: Any = None) -> None:
    """Record a text with a value for each {} in it, as `gc.print` has them; see `scalar`."""
    if not isinstance(text, str):
        raise TraceError(
            f"gc.summary.text takes a text, got {type(text).__name__}", location=locate(2)
        )
    _record("text", tag, values, step, text=text)


def _record(kind: str, tag: str, values: tuple[Any, ...], step: Any, **attrs: Any) -> None:
    if not is_recording():
        return
    if not isinstance(tag, str):
        raise TraceError(f"the name of a summary is a str, got {tag!r}", location=locate(3))
    steps = () if step is None else (step,)
    try:
        emit(OPS["summary"], *values, *steps, kind=kind, tag=tag, stepped=bool(steps), **attrs)
    except GraphError as error:
        raise error.at(locate(3)) from error.__cause__


def graph(model: Any, *args: Any, **kwargs: Any) -> None:
    """Record the graph of a compiled function for these arguments, or a Graph, while a recorder is
    on.

    Raises TraceError inside a compiled function, whose graph is not there yet.
    """
    if current() is not None:
        raise TraceError(
            "gc.summary.graph records a graph that is there, and this one is being traced",
            location=locate(2),
            hint="call it beside the compiled function: gc.summary.graph(fn, *arguments)",
        )
    for recorder in recorders[-1:]:
        if recorder.is_on:
            made = model if isinstance(model, Graph) else model.graph(*args, **kwargs)
            recorder.take("graph", made.name, made, None)


# ---------------------------------------------------------------------------------- who keeps it


def to(*places: str | os.PathLike[str] | Writer, every: int = 1) -> Recorder:
    """A context manager within which summaries are recorded.

    places   a folder for TensorBoard (needs the extra `tensorboard`), a file that ends in .csv or
             .jsonl, or an object with `write(entry)` and `close()`
    every    record steps that are multiples of it alone: the others run without

    Raises GraphError for a place that cannot be written.
    """
    if type(every) is not int or every < 1:
        raise GraphError(f"every is a whole number of at least 1, got {every!r}")
    if not places:
        raise GraphError("summaries go somewhere", hint='gc.summary.to("runs/1")')
    return Recorder([_writer(place) for place in places], every)


def _writer(place: str | os.PathLike[str] | Writer) -> Writer:
    if not isinstance(place, str | os.PathLike):
        if hasattr(place, "write") and hasattr(place, "close"):
            return place
        raise GraphError(f"summaries go to a folder, a file or a writer, not to {place!r}")
    kind: Any = {".csv": CSV, ".jsonl": JSONL}.get(Path(place).suffix)
    if kind is None:
        from graphc.frontend.summaries.tensorboard import TensorBoard as kind
    try:
        made: Writer = kind(place)
    except OSError as error:
        raise GraphError(f"cannot write {place}: {error.strerror}") from None
    return made


@contextmanager
def paused() -> Iterator[None]:
    """A block of which nothing is recorded: a validation, say."""
    recorders.append(_NOBODY)
    try:
        yield
    finally:
        recorders.remove(_NOBODY)


class _Nobody:
    is_on = False

    def take(self, kind: str, tag: str, value: Any, step: int | None) -> None:
        """What runs with summaries of before tells them nobody."""


_NOBODY = _Nobody()


class Recorder:
    """Takes the summaries of this process from `with` to the end of its block.

    step    what they belong to; set it before each step.  While it is None, the first summary of a
            name belongs to 0, the next to 1, and so on

    A name that comes more than once in a step (in a loop, say) gets a number from its second time
    on: "norm", "norm_1", "norm_2".
    """

    def __init__(self, writers: list[Writer], every: int = 1) -> None:
        self.writers = writers
        self.every = every
        self.step: int | None = None
        self._seen: dict[str, tuple[int, int]] = {}  # the last step of a name, and how often in it
        self._lock = threading.Lock()

    def __enter__(self) -> Recorder:
        recorders.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        recorders.remove(self)
        failures = [failure for writer in self.writers if (failure := _closed(writer))]
        if failures and not any(error):
            raise GraphError(f"a summary cannot be written: {failures[0].strerror}")

    @property
    def is_on(self) -> bool:
        """Whether what runs now is recorded."""
        return self.step is None or self.step % self.every == 0

    def scalar(self, tag: str, value: Any, step: int | None = None) -> None:
        """Record a number from outside of a model, also in a step that `every` leaves out."""
        self._write("scalar", tag, _number(value), self.step if step is None else step)

    def take(self, kind: str, tag: str, value: Any, step: int | None = None) -> None:
        """Record a value. Raises GraphError for an image without pixels, RunError where a writer
        fails."""
        if not self.is_on or (step is not None and step % self.every):
            return
        step = self.step if step is None else step
        if kind == "image" and value.ndim == 4:
            for k, each in enumerate(value[:MOST_IMAGES]):
                self._write(kind, f"{tag}/{k}", Picture.of(each), step)
        else:
            self._write(kind, tag, _KINDS[kind](value), step)

    def _write(self, kind: str, tag: str, value: Any, step: int | None) -> None:
        with self._lock:
            last, count = self._seen.get(tag, (-1, 0))
            if step is None:
                step, count = last + 1, 0
            count = count + 1 if step == last else 0
            self._seen[tag] = step, count
            entry = Entry(kind, f"{tag}_{count}" if count else tag, step, value, time.time())
            try:
                for writer in self.writers:
                    writer.write(entry)
            except OSError as error:
                raise RunError(f"a summary cannot be written: {error.strerror}") from error


def _closed(writer: Writer) -> OSError | None:
    """Close a writer; what kept it from writing its last lines."""
    try:
        writer.close()
    except OSError as error:
        return error
    return None


def _number(value: Any) -> float | int:
    found = np.asarray(value)
    return found.item() if found.dtype.kind in "iu" else float(found)


_KINDS: dict[str, Any] = {
    "scalar": _number,
    "histogram": Histogram.of,
    "image": Picture.of,
    "text": str,
    "graph": lambda graph: graph,
}
