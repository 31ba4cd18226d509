"""Where the time of a run goes: the step table walked row by row, each row timed.

Rows that move data (call, copy) are executed natively one at a time, so a time includes about
0.3 us for entering and leaving the walker; rows that steer (jump, branch, loop ...) are followed in
Python.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import numpy as np

from graphc.errors import LimitError
from graphc.record import record
from graphc.runtime import table as step_table
from graphc.runtime.execute import Executable
from graphc.runtime.frame import Frame
from graphc.runtime.image import Origin
from graphc.runtime.memory import address_of

MOST_ROWS = 10_000_000
_WORK = (step_table.CALL, step_table.COPY, step_table.STACK, step_table.PUSH, step_table.POP)


@record
class RowTime:
    """What one row of the table cost over a run: how often it ran, and its seconds in all."""

    row: int
    kernel: str
    origin: Origin | None
    count: int = 0
    seconds: float = 0.0


def profile(executable: Executable, arrays: Sequence[np.ndarray]) -> list[RowTime]:
    """Run once on flat arrays; the rows that ran, in table order.

    Raises what `Executable.run` raises, and LimitError for a run of more than `MOST_ROWS` rows.
    """
    frame, _ = executable.begin(arrays)
    try:
        return _Walk(executable, frame).run()
    finally:
        executable.give(frame)


class _Walk:
    def __init__(self, executable: Executable, frame: Frame) -> None:
        self.executable = executable
        self.frame = frame
        self.words: list[int] = executable.image.table.tolist()
        self.times: dict[int, RowTime] = {}
        self.alone, self.places = _rows_alone(self.words)

    def run(self) -> list[RowTime]:
        whole = int(self.frame.words[0])
        position = 0
        try:
            for _ in range(MOST_ROWS):
                if self.words[position] == step_table.END:
                    return [self.times[row] for row in sorted(self.times)]
                position = self._step(position)
        finally:
            self.frame.words[0] = whole
        raise LimitError(f"the run has more than {MOST_ROWS} rows", hint="profile fewer rounds")

    def _step(self, row: int) -> int:
        """Do one row; returns where to go on."""
        words = self.words
        following = row + words[row + 1]
        if words[row] in _WORK:
            self._timed(row)
            return following
        if words[row] == step_table.JUMP:
            return words[row + 2]
        if words[row] == step_table.BRANCH:
            address = self._base(words[row + 3]) + words[row + 4]
            return following if ctypes.c_int8.from_address(address).value else words[row + 2]
        if words[row] == step_table.SAME:
            first, second = (self._base(words[row + k]) + words[row + k + 1] for k in (3, 5))
            return following if first == second else words[row + 2]
        self._change_register(row)
        if words[row] == step_table.LOOP and self._base(words[row + 2]) > 0:
            return words[row + 3]
        return following

    def _base(self, register: int) -> int:
        return int(self.frame.bases[register])

    def _change_register(self, row: int) -> None:
        words, bases = self.words, self.frame.bases
        register = words[row + 2]
        if words[row] == step_table.ROTATE:
            write, spare = words[row + 3 : row + 5]
            bases[register], bases[write] = bases[write], bases[spare]
            bases[spare] = bases[register]
        elif words[row] == step_table.BUMP:
            for word in range(row + 2, row + words[row + 1], 2):
                bases[words[word]] += words[word + 1]
        elif words[row] == step_table.LOOP:
            bases[register] -= 1
        else:
            start = 0 if words[row + 3] == step_table.ABSENT else self._base(words[row + 3])
            bases[register] = start + words[row + 4]

    def _timed(self, row: int) -> None:
        self.frame.words[0] = address_of(self.alone) + 8 * self.places[row]
        begin = time.perf_counter_ns()
        status = self.executable.support.walk(self.frame.address)
        elapsed = time.perf_counter_ns() - begin
        if status:
            raise self.executable.failure(status, row)
        image = self.executable.image
        known = self.times.get(row)
        if known is None:
            is_call = self.words[row] == step_table.CALL
            name = step_table.NAMES[self.words[row]]
            kernel = image.kernels[self.words[row + 2]] if is_call else name
            known = self.times[row] = RowTime(row, kernel, image.origins.get(row))
        known.count += 1
        known.seconds += elapsed * 1e-9


def _rows_alone(words: list[int]) -> tuple[np.ndarray, dict[int, int]]:
    """Every row followed by an end row, and where each row of the table went."""
    alone: list[int] = []
    places = {}
    for row in step_table.rows(words):
        places[row] = len(alone)
        alone += [*words[row : row + words[row + 1]], step_table.END, 2]
    return np.array(alone, np.int64), places
