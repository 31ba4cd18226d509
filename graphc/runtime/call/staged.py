"""`StagedExecutable`: programs one after the other, where one counts what the next one's sizes are.

y = np.sort(x[x > 0])       first program     how many elements are positive, and the mask
                            second program    its sizes are filled in with that number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from graphc.errors import LimitError
from graphc.record import record
from graphc.runtime.call.array import Array
from graphc.runtime.call.execute import Executable, Value, no_entry
from graphc.runtime.load.program import Image, Slot, dtype_name


class Program(Protocol):
    """What runs the arrays of one step."""

    @property
    def image(self) -> Image: ...

    @property
    def stack_bytes(self) -> int: ...

    def of(self, arrays: Sequence[Value]) -> Executable: ...

    def cancel(self) -> None: ...


@record(frozen=True)
class Step:
    """A program, and the numbers of the values that it takes.

    Values are the arguments, then what each step gives: its first `counts` results are numbers, and
    for each there is an array of that length, which only says so.
    """

    program: Program
    takes: tuple[int, ...]
    counts: int


class StagedExecutable:
    """Runs steps in order; `results` are numbers of values."""

    entry = staticmethod(no_entry)

    def __init__(self, name: str, steps: Sequence[Step], gives: Sequence[int]) -> None:
        self.name = name
        self.steps = tuple(steps)
        self.gives = tuple(gives)

    @property
    def image(self) -> Image:
        """The image of its last program."""
        return self.steps[-1].program.image

    @property
    def stack_bytes(self) -> int:
        return sum(step.program.stack_bytes for step in self.steps)

    def nested_entry(self, *args: Any) -> Any:
        """It is called through Python."""
        return no_entry

    def of(self, arrays: Sequence[Value]) -> StagedExecutable:
        """What runs these arrays."""
        return self

    def run(self, arrays: Sequence[Value], *, checked: bool = False) -> list[Any]:
        """As `Executable.run`."""
        values: list[Any] = [a.numpy() if isinstance(a, Array) else a for a in arrays]
        for step in self.steps:
            given = [values[number] for number in step.takes]
            made = step.program.of(given).run(given)
            values += [self._length(int(count)) for count in made[: step.counts]]
            values += made[step.counts :]
        return [values[number] for number in self.gives]

    def _length(self, count: int) -> np.ndarray[Any, Any]:
        try:
            return np.empty(count, np.bool_)
        except (MemoryError, ValueError):
            raise LimitError(f"{self.name} has a result of {count} elements: no memory") from None

    def run_resident(self, arrays: Sequence[Value]) -> list[Array]:
        """As `Executable.run_resident`."""
        return [Array(Slot("", dtype_name(a.dtype), a.shape), a) for a in self.run(arrays)]

    def __call__(self, *arrays: Value) -> Any:
        """As a call of an `Executable`."""
        made = self.run(arrays)
        return made[0] if len(made) == 1 else tuple(made)

    def cancel(self) -> None:
        """Stop the runs that are in flight."""
        for step in self.steps:
            step.program.cancel()
