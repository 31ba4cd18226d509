"""A .gcx file of a program that runs in phases: a file of files.

    tensor          content
    program.2.0     the first program of the third phase, a whole .gcx file of its own
    text            the graph as gir text

The metadata say what each phase takes and counts, and for which sizes the program is
(`PhasedExecutable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.record import replace
from graphc.forks import fork_safe_lock
from graphc.runtime.call.execute import Executable, Value
from graphc.runtime.call.open_executable import OpenExecutable
from graphc.runtime.call.phased_executable import PhasedExecutable, Step
from graphc.runtime.devices.device import check_host
from graphc.runtime.files.gcx_reader import File, Held, StoredBody, slots_of
from graphc.runtime.load.filled_image import check_sources
from graphc.runtime.load.program import HostCall, Image, Slot, numpy_dtype
from graphc.runtime.load.size_formulas import Reader, listed, whole

Make = Callable[[Image], Executable | OpenExecutable]
_COUNT = Slot("", "i64", ())
_LENGTH = Slot("", "bool", (0,))  # an array that only says how long it is


class StoredProgram:
    """The programs of a phase: each for sizes that those before it are not for."""

    def __init__(self, images: Sequence[Image], make: Make) -> None:
        self.images = tuple(images)
        self._made = [make(image) for image in images]

    @property
    def image(self) -> Image:
        return self.images[0]

    @property
    def stack_bytes(self) -> int:
        return sum(made.stack_bytes for made in self._made)

    def of(self, arrays: Sequence[Value]) -> Executable:
        """What runs these arrays. Raises FeedError where nothing does."""
        shapes = tuple(tuple(a.shape) for a in arrays)
        for made in self._made:
            if not isinstance(made, OpenExecutable):
                if tuple(slot.shape for slot in made.params) == shapes:
                    return made
            elif (found := made.bound(shapes)) is not None:
                return found
        first = self._made[0]
        return first.of(arrays) if isinstance(first, OpenExecutable) else first

    def cancel(self) -> None:
        for made in self._made:
            made.cancel()


def metadata_of(phased: PhasedExecutable) -> dict[str, Any]:
    """What a file says about the phases."""
    return {
        "name": phased.name,
        "params": _listed_slots(phased.params),
        "results": _listed_slots(phased.results),
        "steps": [
            [list(step.takes), list(step.counts), len(step.program.images)] for step in phased.steps
        ],
        "gives": list(phased.gives),
        "formulas": listed(phased.formulas),
        "memory_limit": phased.memory_limit,
        "lines": {name: list(loc) if loc else None for name, loc in phased.lines.items()},
    }


def _listed_slots(slots: Sequence[Slot]) -> list[Any]:
    return [[slot.name, slot.dtype, list(slot.shape)] for slot in slots]


def program_name(step: int, number: int) -> str:
    """The tensor that a program is in."""
    return f"program.{step}.{number}"


class PhasedFile:
    """An open file of this kind, all of it checked; `images` are those of each phase."""

    def __init__(self, file: File) -> None:
        self.file = file
        if not file.sound:
            raise file.damaged("its metadata are not what was saved")
        try:
            self._read(file.metadata["phased"])
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            raise file.damaged("its metadata is incomplete") from None

    def _read(self, told: Mapping[str, Any]) -> None:
        self.name = str(told["name"])
        self.params = tuple(slots_of(told["params"]))
        self.results = tuple(slots_of(told["results"]))
        self.formulas = Reader().formulas(told["formulas"])
        self.lines = {
            name: (str(at[0]), int(at[1])) if at else None for name, at in told["lines"].items()
        }
        limit = told.get("memory_limit")
        self.memory_limit = None if limit is None else whole(limit)
        self.gives = _numbers(told["gives"])
        self.steps: list[tuple[tuple[int, ...], tuple[str, ...]]] = []
        self.files: list[list[File]] = []
        for number, (takes, counts, programs) in enumerate(told["steps"]):
            self.steps.append((_numbers(takes), tuple(map(str, counts))))
            self.files.append([self._program(number, k) for k in range(programs)])
        self.images = [[file.image() for file in files] for files in self.files]
        self._check()

    def _program(self, step: int, number: int) -> File:
        name = program_name(step, number)
        return File(Held(f"{self.file.name}: {name}", self.file.tensor(name, "U8")))

    def _check(self) -> None:
        """Raise ValueError unless all that a phase takes and the program gives is there, and is of
        the type that it is taken for; and unless what is counted is a size, counted once.
        """
        symbols = zip(self.formulas.symbols, self.formulas.sources, strict=True)
        told = {name: source.param < len(self.params) for name, source in symbols}
        counted = {name for name in told if not told[name]}
        check_sources((*self.params, *(_LENGTH for _ in counted)), self.formulas)
        values = [*self.params, *(_LENGTH for name in told if told[name])]
        for (takes, counts), images in zip(self.steps, self.images, strict=True):
            found = images[0].results
            _check_alike(_values_of(takes, values), *(image.params for image in images))
            _check_alike(found, *(image.results for image in images))
            _check_alike([_COUNT for _ in counts], found[: len(counts)])
            if len(set(counts)) != len(counts) or not set(counts) <= counted:
                raise ValueError(counts)
            counted.difference_update(counts)
            values += [*(_LENGTH for _ in counts), *found[len(counts) :]]
        _check_alike(_values_of(self.gives, values), self.results)
        for slot in self.params:
            numpy_dtype(slot.dtype)
        if not self.steps:
            raise ValueError("a program of no phases")

    def executable(self, images: Sequence[Sequence[Image]], make: Make) -> PhasedExecutable:
        """What runs the images, which may have other containers than those of the file."""
        steps = [
            Step(StoredProgram(own, make), takes, counts)
            for own, (takes, counts) in zip(images, self.steps, strict=True)
        ]
        return PhasedExecutable(
            self.name,
            self.params,
            self.results,
            steps,
            self.gives,
            self.formulas,
            self.lines,
            self.memory_limit,
        )

    def make_variables(self, images: Sequence[Sequence[Image]]) -> None:
        """As `File.make_variables`."""
        for files, own in zip(self.files, images, strict=True):
            for file, image in zip(files, own, strict=True):
                file.make_variables(image)


def _values_of(numbers: Sequence[int], values: Sequence[Slot]) -> list[Slot]:
    if not all(0 <= number < len(values) for number in numbers):
        raise ValueError(numbers)
    return [values[number] for number in numbers]


def _check_alike(wanted: Sequence[Slot], *found: Sequence[Slot]) -> None:
    """Raise ValueError unless they have the same dtypes and ranks: extents depend on the run."""
    kinds = [[(slot.dtype, len(slot.shape)) for slot in slots] for slots in (wanted, *found)]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(kinds)


class Body:
    """A program that a body of another one calls; it is made when a run first comes to it."""

    def __init__(self, file: PhasedFile, make: Make) -> None:
        self.file, self._make = file, make
        self._lock = fork_safe_lock()
        self._made: PhasedExecutable | None = None

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> tuple[Any, ...]:
        return tuple(self.program().run(arrays))

    def program(self) -> PhasedExecutable:
        """What runs it."""
        with self._lock:
            if self._made is None:
                images = [[with_bodies(i, self._make) for i in own] for own in self.file.images]
                self._made = self.file.executable(images, self._make)
            return self._made


def with_bodies(image: Image, make: Make) -> Image:
    """The image of a file with what its bodies call. Raises GraphError for what is damaged, and for
    code that this machine cannot execute."""

    def called(host: HostCall) -> HostCall:
        if not isinstance(host.call, StoredBody):
            return host
        file = PhasedFile(host.call.file())
        try:
            _check_alike(host.operands, file.params)
            _check_alike(host.results, file.results)
        except ValueError:
            raise file.file.damaged("it is called on other arrays") from None
        for each in (each for own in file.images for image in own for each in image.images):
            check_host(each.triple, each.cpu, each.features)
        body = Body(file, make)
        return replace(host, call=body, program=body.program)

    if not any(each.hosts for each in image.images):
        return image
    first, *others = (
        replace(each, hosts={symbol: called(host) for symbol, host in each.hosts.items()})
        for each in image.images
    )
    return replace(first, others=tuple(others))


def _numbers(rows: Any) -> tuple[int, ...]:
    made = tuple(rows)
    if any(type(number) is not int for number in made):
        raise TypeError(rows)
    return made
