"""An `Image`: everything a compiled partition is, as plain data that can be saved, checked and
run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.record import record, replace
from graphc.errors import GraphError
from graphc.runtime.load import table as step_table
from graphc.runtime.load.size_formulas import Formulas, Holes

if TYPE_CHECKING:
    from graphc.runtime.call.phased_executable import PhasedExecutable
    from graphc.runtime.cuda.gemm import Gemm

ALIGNMENT = 64
MOST_BYTES = 1 << 47
FAR = -1  # the end of a channel that is in another process
MOST_SHARED = 1 << 20  # bytes of a block
MOST_BLOCKS, MOST_LANES = (1 << 31) - 1, 1024  # of one launch

_NUMPY_CODES = {
    "bool": "?",
    "i8": "i1",
    "i16": "i2",
    "i32": "i4",
    "i64": "i8",
    "u8": "u1",
    "u16": "u2",
    "u32": "u4",
    "u64": "u8",
    "f16": "f2",
    "f32": "f4",
    "f64": "f8",
    "c64": "c8",
    "c128": "c16",
}


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a graphc dtype name; GraphError for an unknown name."""
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    if name not in _NUMPY_CODES:
        raise GraphError(f"unknown dtype {name!r}")
    return np.dtype(_NUMPY_CODES[name])


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The graphc name of a NumPy dtype, or NumPy's own name where graphc has none."""
    if dtype.name == "bfloat16":
        return "bf16"
    for name, code in _NUMPY_CODES.items():
        if dtype == np.dtype(code):
            return name
    return str(dtype)


@record(frozen=True)
class Slot:
    """One flat parameter or result: its name, dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@record(frozen=True)
class StateSlot:
    """A variable of a program: where it lives and what the program does with it."""

    slot: Slot
    container: str
    read: bool
    written: bool


@record(frozen=True)
class Channel:
    """A way for messages of so many bytes from one device of a program to another, by number; FAR
    is one that another process runs.

    A buffered channel copies the value when it is sent; otherwise the value stays where it is until
    the run ends, and the receiver copies it.
    """

    name: str
    nbytes: int
    source: int
    target: int
    buffered: bool


@record(frozen=True)
class Origin:
    """Where a step comes from: the text of its node and the user's file and line."""

    node: str
    file: str = ""
    line: int = 0

    @property
    def location(self) -> tuple[str, int] | None:
        return (self.file, self.line) if self.file else None


@record(frozen=True)
class HostCall:
    """A kernel that is a Python function: it maps arrays like the operands to those like the
    results (one array, or a tuple of several or none).

    `resource` is the text of the queue or reader that it calls, and the method, if it does that:
    then any process may call its own.  `program` makes the compiled program that it calls, if it
    calls one: what a file holds.
    """

    call: Callable[..., Any]
    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]
    origin: Origin
    resource: tuple[str, str] | None = None
    program: Callable[[], PhasedExecutable] | None = None


UNLIMITED = 1 << 62


@record(frozen=True)
class Image:
    """A compiled partition as data.

    `table` is the step table (`graphc.runtime.load.table`), `words` the int64 parameters its steps
    point into, `constants` the bytes behind base register 1 (64-byte aligned).  `objects` is
    object code, each piece with the symbols it defines that matter here, and may use symbols of
    pieces before it; kernel i of the table is `kernels[i]`.
    `support` is the object with the walker, the thread pool and the call entry.  `threads` is the
    greatest thread count the arena has workspace for.  `registers` counts the scratch base
    registers after the results. `donated` is empty or names for each result the parameter whose
    memory it takes over, else -1.  `variables` are those the table reads and writes; their base
    registers follow those of the results.  `origins` maps the word index of a row to where it
    comes from; `reasons` maps a kernel status to words.  `text` is the graph as gir; `cpu`,
    `features` (see `graphc.runtime.devices.device.needed_features`) and `triple` say what can
    execute the objects.

    The image of a program of several devices is that of its first device; `others` are those of
    the other devices, without params and results, and `channels` what they talk through.

    The image of a GPU has the triple "cuda", its `cpu` is a chip ("sm_90") or "simulator".  Its
    objects are cubins, and `portable` holds the PTX text of each, for newer chips; the simulator
    has none.  Kernel i takes `arity[i]` of the `words` and `shared[i]` bytes of shared memory;
    units and grain of a row that calls it are the blocks and the threads of its launch.  `largest`
    are the largest values in the arena at its fullest, with their bytes; `guarded` has variables
    written only when no kernel before has failed.  `products` says of rows what a library can do in
    their place, `extents` of the rows of counted loops how many bytes each operand has, and whether
    they are written.
    The stacks of a run grow to `stack_bytes` together.
    `hosts` are the kernels that are functions of this process.
    The image of a program for many sizes has `formulas`, and each device's `holes` for them.
    """

    name: str
    params: tuple[Slot, ...]
    results: tuple[Slot, ...]
    table: np.ndarray
    words: np.ndarray
    constants: np.ndarray
    kernels: tuple[str, ...]
    objects: tuple[tuple[bytes, tuple[str, ...]], ...]
    support: bytes
    arena_bytes: int = 0
    threads: int = 1
    registers: int = 0
    donated: tuple[int, ...] = ()
    variables: tuple[StateSlot, ...] = ()
    origins: Mapping[int, Origin] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    text: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    triple: str = ""
    device: str = "cpu:0"
    channels: tuple[Channel, ...] = ()
    others: tuple[Image, ...] = ()
    arity: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    portable: tuple[bytes, ...] = ()
    largest: tuple[tuple[int, Origin], ...] = ()
    guarded: bool = False
    stack_bytes: int = UNLIMITED
    products: Mapping[int, Gemm] = field(default_factory=dict)
    extents: Mapping[int, tuple[tuple[int, bool], ...]] = field(default_factory=dict)
    hosts: Mapping[str, HostCall] = field(default_factory=dict)
    formulas: Formulas | None = None
    holes: Holes | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU executes the objects."""
        return self.triple == "cuda"

    @property
    def simulated(self) -> bool:
        """Whether the kernels are functions of this process, which a simulated GPU runs."""
        return self.on_gpu and self.cpu == "simulator"

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of all devices."""
        return self, *self.others

    @property
    def first_register(self) -> int:
        """The base register after parameters, results and variables."""
        return self.first_variable + len(self.variables)

    @property
    def first_variable(self) -> int:
        """The base register after parameters and results."""
        return step_table.FIRST_PARAM + len(self.params) + len(self.results)

    @property
    def bases(self) -> int:
        """How many base registers a run needs."""
        return self.first_register + self.registers

    def blamed(self, error: GraphError, row: int) -> GraphError:
        """The error with the node and the line that a row comes from."""
        origin = self.origins.get(row)
        return error.at(origin.location, (origin.node,)) if origin else error

    def check(self) -> None:
        """Raise GraphError unless sizes, offsets, jumps and kernel indices are within bounds."""
        for number, image in enumerate(self.images):
            image._check_alone(number, self.channels)
        if any(image.params or image.results or image.others for image in self.others):
            raise GraphError("only the first device has params, results and other devices")
        for channel in self.channels:
            ends = channel.source, channel.target
            known = all(FAR <= end <= len(self.others) for end in ends)
            if not known or ends[0] == ends[1] != FAR:
                raise GraphError(f"channel {channel.name!r} leads from {ends[0]} to {ends[1]}")
            if not 0 <= channel.nbytes < MOST_BYTES:
                raise GraphError(f"channel {channel.name!r} carries {channel.nbytes} bytes")

    def _check_alone(self, number: int, channels: Sequence[Channel]) -> None:
        slots = (*self.params, *self.results, *(v.slot for v in self.variables))
        for slot in slots:
            _check_slot(slot)
        if not 0 <= self.arena_bytes < MOST_BYTES:
            raise GraphError(f"an arena of {self.arena_bytes} bytes is not possible")
        if not 1 <= self.threads <= 256 or not 0 <= self.registers < 1 << 16:
            raise GraphError(
                f"{self.threads} threads or {self.registers} registers is not possible"
            )
        self._check_donated()
        if self.on_gpu:
            self._check_launches()
        defined = {symbol for _, symbols in self.objects for symbol in symbols} | set(self.hosts)
        missing = [symbol for symbol in self.kernels if symbol not in defined]
        missing = [] if self.simulated else missing
        if missing:
            raise GraphError(f"no object code defines kernel {missing[0]!r}")
        sizes = [self.arena_bytes, self.constants.nbytes]
        sizes += [slot.nbytes for slot in slots]
        sizes += [-1] * self.registers
        step_table.validate(
            self.table,
            step_table.Bounds(
                len(self.kernels),
                self.words.size,
                sizes,
                self.first_register,
                [c.nbytes if c.source == number else -1 for c in channels],
                [c.nbytes if c.target == number else -1 for c in channels],
            ),
        )
        if self.products:
            self._check_products(sizes)
        if self.extents:
            self._check_extents()
        if self.hosts:
            self._check_hosts(sizes)

    def _check_products(self, sizes: Sequence[int]) -> None:
        """`sizes` are the bytes of the bases, -1 where that is not known."""
        words = self.table.tolist()
        starts = list(step_table.rows(words))
        taken: set[int] = set()
        for row, product in self.products.items():
            calls = step_table.calls_until(words, starts, row, product.calls)
            if not self.on_gpu or not calls or not taken.isdisjoint(calls):
                raise GraphError(f"no product of matrices can stand for word {row} of the table")
            taken.update(calls)
            operands = step_table.operands_of(words, row)
            if any(not set(step_table.operands_of(words, call)) <= set(operands) for call in calls):
                raise GraphError(f"the calls before word {row} of the table have other operands")
            product.check([sizes[base] - at if sizes[base] >= 0 else -1 for base, at in operands])

    def _check_extents(self) -> None:
        words = self.table.tolist()
        counts = {
            row: words[row + 6] for row in step_table.rows(words) if words[row] == step_table.CALL
        }
        for row, extents in self.extents.items():
            if counts.get(row) != len(extents) or any(size < 0 for size, _ in extents):
                raise GraphError(
                    f"word {row} of the table calls nothing on {len(extents)} operands"
                )

    def _check_hosts(self, sizes: Sequence[int]) -> None:
        """`sizes` are the bytes of the bases, -1 where that is not known."""
        words = self.table.tolist()
        calls = (row for row in step_table.rows(words) if words[row] == step_table.CALL)
        for row in calls:
            host = self.hosts.get(self.kernels[words[row + 2]])
            if host is None:
                continue
            slots, places = (*host.operands, *host.results), step_table.operands_of(words, row)
            rooms = [sizes[base] - at if sizes[base] >= 0 else MOST_BYTES for base, at in places]
            for slot in slots:
                _check_slot(slot)
            if len(slots) != len(rooms) or any(s.nbytes > r for s, r in zip(slots, rooms)):
                raise GraphError(f"word {row} of the table calls a function on other arrays")

    def _check_launches(self) -> None:
        if len(self.arity) != len(self.kernels) or min(self.arity, default=0) < 0:
            raise GraphError(f"{len(self.arity)} counts of words for {len(self.kernels)} kernels")
        wrong = [size for size in self.shared if not 0 <= size <= MOST_SHARED]
        if wrong or len(self.shared) not in (0, len(self.kernels)):
            sizes = ", ".join(map(str, wrong or self.shared))
            raise GraphError(f"{len(self.kernels)} kernels cannot share {sizes} bytes")
        if self.portable and len(self.portable) != len(self.objects):
            raise GraphError(f"{len(self.portable)} PTX texts for {len(self.objects)} objects")
        words = self.table.tolist()
        for row in step_table.rows(words):
            if words[row] != step_table.CALL:
                continue
            kernel, blocks, threads, first = words[row + 2 : row + 6]
            if not blocks <= MOST_BLOCKS or not 1 <= threads <= MOST_LANES:
                raise GraphError(f"a launch of {blocks} blocks of {threads} threads")
            if not 0 <= kernel < len(self.arity) or first + self.arity[kernel] > self.words.size:
                raise GraphError(f"no words for kernel {kernel}, called at word {row} of the table")

    def _check_donated(self) -> None:
        given = [param for param in self.donated if param >= 0]
        if self.donated and len(self.donated) != len(self.results):
            raise GraphError(f"{len(self.donated)} donations for {len(self.results)} results")
        if len(set(given)) != len(given) or any(param >= len(self.params) for param in given):
            raise GraphError("a parameter is donated twice or does not exist")
        for slot, param in zip(self.results, self.donated):
            if param >= 0 and (slot.dtype, slot.shape) != _kind(self.params[param]):
                raise GraphError(f"{slot.name!r} cannot take over {self.params[param]}")


def _kind(slot: Slot) -> tuple[str, tuple[int, ...]]:
    return slot.dtype, slot.shape


def _check_slot(slot: Slot) -> None:
    numpy_dtype(slot.dtype)
    if len(slot.shape) > 64 or any(extent < 0 for extent in slot.shape):
        raise GraphError(f"{slot.name!r} has an impossible shape {slot.shape}")
    if slot.nbytes >= MOST_BYTES:
        raise GraphError(f"{slot.name!r}: {slot} is too large")


def with_containers(image: Image, names: Mapping[str, str]) -> Image:
    """The image with its variables in containers of other names."""

    def moved(each: Image) -> Image:
        slots = (replace(v, container=names.get(v.container, v.container)) for v in each.variables)
        return replace(each, variables=tuple(slots))

    return replace(moved(image), others=tuple(map(moved, image.others)))
