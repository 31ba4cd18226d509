"""A progress bar on the standard error stream, for people who watch.

Written by hand because `rich.progress` takes 50 ms to import, a first call of a small model less.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from graphc.errors import GraphError
from graphc.learn.callbacks import Callback, History

_WIDTH, _LEAST = 24, 5  # of the bar; the narrow one leaves room for the figures
_PAUSE = 0.1  # seconds between two drawings


class Progress(Callback):
    """How far an epoch is, the time of a step, the mean loss and metrics so far.

    verbose   0 nothing; 1 a bar, and nothing where the stream is no terminal; 2 a line at the end
              of each epoch, wherever the stream goes; 3 a bar under the curve of the loss

    Epochs shorter than the time between two drawings share a line of the terminal.
    """

    def __init__(self, verbose: int = 1, stream: Any = None) -> None:
        if verbose not in (0, 1, 2, 3):
            raise GraphError(f"verbose is 0, 1, 2 or 3, not {verbose!r:.80}")
        self._stream = sys.stderr if stream is None else stream
        terminal = getattr(self._stream, "isatty", bool)()
        self.is_bar = verbose in (1, 3) and terminal
        self.is_shown = self.is_bar or verbose == 2
        self.is_curve = verbose == 3
        self._rows = 0  # of the curve above the bar
        self._drawn = 0.0
        self._width = 0

    def on_epoch_begin(self, model: Any, epoch: int) -> None:
        self._began = self._start = time.perf_counter()
        self._first = self._measured = model.position

    def on_step_end(self, model: Any, step: int, logs: Mapping[str, float]) -> None:
        if not self.is_shown:
            return
        now = time.perf_counter()
        if model.position == self._first + 1 < model.steps_per_epoch:
            self._start, self._measured = now, model.position  # the first step may have compiled
        if self.is_bar and now - self._drawn > _PAUSE:
            self._draw(model, model.totals.means(), now)

    def on_epoch_end(self, model: Any, epoch: int, logs: dict[str, float]) -> None:
        now = time.perf_counter()
        is_last = model.stop_training or epoch + 1 == model.epochs
        if self.is_bar:
            is_long = now - self._began > _PAUSE and not self.is_curve
            if self.is_curve and (is_last or now - self._drawn > _PAUSE):
                self._draw_curve(model.history.with_epoch(logs))
            if is_long or is_last:
                self._draw(model, logs, now, is_last=True)
                self._end_line()
            elif now - self._drawn > _PAUSE:
                self._draw(model, logs, now)
        elif self.is_shown:
            self._write(self._line(model, logs, now) + "\n")

    def on_fit_end(self, model: Any) -> None:
        if self._width:  # the epoch was broken off: what comes next begins on its own line
            self._end_line()

    def _end_line(self) -> None:
        self._write("\n")
        self._width = 0

    def _draw(
        self, model: Any, figures: Mapping[str, float], now: float, is_last: bool = False
    ) -> None:
        """Draw over the line; the last drawing of a line may be longer than the terminal is wide,
        one that is to be drawn over may not.
        """
        self._drawn = now
        room = shutil.get_terminal_size().columns - 1
        line = self._line(model, figures, now, room)
        line = line if is_last else line[:room]
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def _draw_curve(self, history: History) -> None:
        """Draw over the curve above the bar, and over the bar."""
        size = shutil.get_terminal_size()
        text = history.draw("loss", size.columns - 1, min(12, size.lines - 4))
        up = f"\x1b[{self._rows}A" if self._rows else ""
        self._write(f"\r{up}\x1b[J{text}\n")
        self._rows, self._width = text.count("\n") + 1, 0

    def _line(
        self, model: Any, figures: Mapping[str, float], now: float, room: int | None = None
    ) -> str:
        done, steps = int(model.position), int(model.steps_per_epoch)
        seconds = (now - self._start) / max(1, done - self._measured)
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        before = f"epoch {model.epoch + 1}/{model.epochs} ["
        counted = f"{done}/{steps}" if steps else f"{done}"  # how many there are, nobody knows
        steps = max(steps, done, 1)
        after = f"] {counted}  {duration(seconds)}/step  {numbers}"
        left = _WIDTH if room is None else room - len(before) - len(after)
        width = max(_LEAST, min(_WIDTH, left))
        filled = width * done // steps
        return before + "=" * filled + ">" * (filled < width) + " " * (width - filled - 1) + after

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def duration(seconds: float) -> str:
    """A time with its unit: 1.2 s, 3.4 ms, 56 us."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
