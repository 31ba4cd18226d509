"""`PhasedExecutable`: programs one after the other, where one counts what the next one's sizes are.

y = np.sort(x[x > 0])       first program     how many elements are positive, and the mask
                            second program    its sizes are filled in with that number
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from graphc.base.record import record
from graphc.errors import FeedError, GraphError, LimitError, SizeError
from graphc.runtime.call.array import Array
from graphc.runtime.call.binding import held, homes_of
from graphc.runtime.call.execute import Executable, Value, no_entry
from graphc.runtime.call.open_executable import OpenExecutable
from graphc.runtime.load.program import Image, Slot, dtype_name
from graphc.runtime.load.size_formulas import Formulas


class Program(Protocol):
    """What runs the arrays of one step."""

    @property
    def image(self) -> Image: ...

    @property
    def images(self) -> Sequence[Image]: ...

    @property
    def stack_bytes(self) -> int: ...

    def of(self, arrays: Sequence[Value]) -> Executable: ...

    def cancel(self) -> None: ...


@record(frozen=True)
class Step:
    """A program, and the numbers of the values that it takes.

    Values are the arguments, then what each step gives: its first results are the numbers that it
    `counts`, and for each there is an array of that length, which only says so.
    """

    program: Program
    takes: tuple[int, ...]
    counts: tuple[str, ...]


class Refused(GraphError):
    """A run has counted what its steps are not for: `counts`, by names."""

    def __init__(self, name: str, text: str, counts: Mapping[str, int]) -> None:
        known = ", ".join(f"{name} = {count}" for name, count in counts.items())
        super().__init__(
            f"{name} was compiled for {text}, and the run has {known}",
            hint="a compiled function that is called itself is traced again where that is so",
        )
        self.counts = dict(counts)


def _entered(executable: Executable, arrays: list[Any]) -> tuple[Any, ...]:
    """Its results, by its native entry where there is one."""
    made = executable(*arrays)
    return made if isinstance(made, tuple) else (made,)


class PhasedExecutable:
    """Runs steps in order; `gives` are the numbers of the results.

    `params` and `results` are shown with the sizes of the first compilation.
    `formulas` are for the arguments and then an array for each count, of that length.
    What they guard is checked as soon as it is known.  The containers of all steps are the run's
    from the first step to the last.
    """

    entry = staticmethod(no_entry)

    def __init__(
        self,
        name: str,
        params: Sequence[Slot],
        results: Sequence[Slot],
        steps: Sequence[Step],
        gives: Sequence[int],
        formulas: Formulas,
        lines: Mapping[str, tuple[str, int] | None],
        memory_limit: int | None = None,
    ) -> None:
        self.name = name
        self.memory_limit = memory_limit  # bytes of what all steps make, and of their arenas
        self.params, self.results = tuple(params), tuple(results)
        self.steps = tuple(steps)
        self.gives = tuple(gives)
        self.formulas = formulas
        self.lines = lines  # that ask for the counts
        pairs = zip(formulas.symbols, formulas.sources, strict=True)
        self.given = {name: source for name, source in pairs if source.param < len(params)}
        slots = [slot for step in steps for slot in step.program.image.variables]
        self.homes = homes_of(slots)
        # The latest shapes of arguments that it is for, and the sizes that these say.
        self._latest: tuple[list[tuple[int, ...]] | None, dict[str, int]] = None, {}

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

    def of(self, arrays: Sequence[Value]) -> PhasedExecutable:
        """What runs these arrays."""
        return self

    def run(self, arrays: Sequence[Value], *, checked: bool = False) -> list[Any]:
        """As `Executable.run`."""
        return self.run_by(_entered, arrays)

    def run_by(
        self, call: Callable[[Executable, list[Any]], Sequence[Any]], arrays: Sequence[Value]
    ) -> list[Any]:
        """Run, each step by this call of its program with what it takes."""
        values: list[Any] = [a.numpy() if isinstance(a, Array) else a for a in arrays]
        counts = self._sizes_of([a.shape for a in values])
        values += map(self._length, counts.values())
        needed = 0
        with held(self.homes):
            for step in self.steps:
                given = [values[number] for number in step.takes]
                executable = step.program.of(given)
                if self.memory_limit is not None:
                    needed += bytes_of(executable.image)
                    self._check_memory(needed, self.memory_limit, counts)
                if self.homes:
                    executable.be_part_of(self.homes)
                made = call(executable, given)
                counts.update(zip(step.counts, map(int, made), strict=False))
                self._check(counts)
                text = self.formulas.broken_by(counts)
                if text:
                    raise Refused(self.name, text, counts)
                values += [self._length(counts[name]) for name in step.counts]
                values += made[len(step.counts) :]
        return [values[number] for number in self.gives]

    def symbols_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The sizes that arguments of these shapes say."""
        return {name: source.value(shapes) for name, source in self.given.items()}

    def is_for(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether arguments of these shapes can be run."""
        symbols = self.symbols_of(shapes)
        if min(symbols.values(), default=0) < 0 or self.formulas.broken_by(symbols):
            return False
        values = self.formulas.known([symbols.get(name, 0) for name in self.formulas.symbols])
        return len(shapes) == len(self.params) and self.formulas.are_extents(values, shapes)

    def _sizes_of(self, shapes: list[tuple[int, ...]]) -> dict[str, int]:
        """The sizes that arguments say. Raises FeedError for arguments that it is not for."""
        latest, sizes = self._latest
        if shapes != latest:
            self._check_arguments(shapes)
            sizes = self.symbols_of(shapes)
            self._latest = shapes, sizes
        return dict(sizes)

    def _check_arguments(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Raise FeedError for arguments that it is not for."""
        if len(shapes) != len(self.params):
            raise FeedError(f"{self.name} takes {len(self.params)} arrays, got {len(shapes)}")
        for slot, shape in zip(self.params, shapes, strict=True):
            if len(shape) != len(slot.shape):
                raise FeedError(f"{slot.name} has rank {len(shape)}, the program takes {slot}")
        if not self.is_for(shapes):
            known = self.symbols_of(shapes)
            listed = ", ".join(str(list(shape)) for shape in shapes)
            text = self.formulas.broken_by(known) if min(known.values(), default=0) >= 0 else ""
            raise FeedError(
                f"{self.name} was compiled for {text}" if text else f"{self.name}: no sizes fit",
                details=(f"arrays of the shapes {listed}",),
            )

    def _check(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            if count < 0:
                raise SizeError(
                    f"{self.name}: the data decides a size, and there is none for this",
                    location=self.lines.get(name),
                    hint="repeats may not be negative, and what rules for bins see must be finite",
                )

    def _check_memory(self, needed: int, limit: int, counts: Mapping[str, int]) -> None:
        """Raise LimitError where the steps so far and the next one need more than they may."""
        if needed > limit:
            known = ", ".join(f"{name} = {count}" for name, count in counts.items())
            raise LimitError(
                f"{self.name} needs {needed} bytes or more for intermediate values and results, as"
                f" the run has {known}; memory_limit is {limit}",
                location=next((self.lines[name] for name in counts if self.lines.get(name)), None),
                hint="give it more, or find fewer (y[:n])",
            )

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


def bytes_of(image: Image) -> int:
    """What a run of an image has memory for: its arenas and its results."""
    arenas = sum(each.arena_bytes for each in image.images)
    return arenas + sum(slot.nbytes for slot in image.results)


Runnable = Executable | OpenExecutable | PhasedExecutable  # what a .gcx file holds
