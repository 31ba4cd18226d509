"""Loop IR to readable Python for `numba.cuda`, and to the launch that runs it.

    def kernel(a0, a1, status, row):
        # a0: in f32[4194304]
        # a1: out f32[4096]
        thread = np.int64(cuda.threadIdx.x)
        lane, group = thread, np.int64(cuda.blockIdx.x)
        shared_f32 = cuda.shared.array(256, np.float32)
        for i0 in range(group, 4096, 2048):  # parallel
            r0 = np.float32(0.0)
            for i1 in range(lane, 1024, 256):  # vector
                r0 += a0[i0 * 1024 + i1]
            r0 = group_add_f32(r0, shared_f32)  # over all lanes, in each of them
            if lane == 0:
                a1[i0] = r0

How loops spread over threads is decided in `lanes`.  The source runs on simulated GPUs as it
stands; see `graphc.gpu` for the names it uses.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.block_reduce import group_function
from graphc.codegen.gpu.held_rows import key_of
from graphc.codegen.gpu.launch import Launch, Operand, Scratch
from graphc.codegen.gpu.multi_pass import phases
from graphc.codegen.gpu.thread_map import Shape, rewritten, shape_of, shared_sums, stores_to
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.gpu.vectors import WIDTH, Vectors, depends, exact_trips, vectors_of
from graphc.codegen.numba.route import execute
from graphc.codegen.python.helpers import number, storage
from graphc.codegen.python.scalar import ADD, ATOM, LOOSE, Text
from graphc.codegen.python.source import KernelSource, Library, Source
from graphc.ir.types import BOOL, DTYPES, F64, I32, DType
from graphc.loops.facts import index_range, loop_range, work_bytes
from graphc.loops.nest import (
    Assign,
    Buffer,
    Declare,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Register,
    Scalars,
    Statement,
    Store,
    Update,
    expressions,
)

HEADER = """\
import numpy as np

from graphc.gpu import ceil, cuda, device, exchange, floor, fma, load4, offset, rint, sqrt
from graphc.gpu import store4, trunc

helper = device
"""
NAME = "kernel"
_ROUNDING = ("sqrt", "floor", "ceil", "trunc", "rint")


def launches_of(
    kernel: Kernel, operands: tuple[Operand, ...], chip: Chip
) -> tuple[tuple[Launch, ...], int]:
    """The launches of a loop kernel and the bytes of its scratch memory.

    `operands` are the memory of its buffers but for scratch, in order.
    """
    scratch = Scratch()
    places = {b.index: o for b, o in zip(kernel.buffers, operands, strict=False)}
    made = []
    for part in phases(kernel, chip):
        for buffer in part.buffers:
            if buffer.index >= len(kernel.buffers) and buffer.index not in places:
                places[buffer.index] = scratch.take(buffer.size * buffer.dtype.itemsize)
        made.append(launch_of(part, places, chip, scratch))
    return tuple(made), scratch.nbytes


def launch_of(kernel: Kernel, places: dict[int, Operand], chip: Chip, scratch: Scratch) -> Launch:
    """One launch; `places` is the memory of the buffers that are no scratch of groups."""
    shape = shape_of(kernel, chip)
    writer = GpuKernel(kernel, shape)
    body = writer.text()
    text = "\n".join([HEADER, *writer.library.parts, body])
    given, buffers = [], []
    for buffer in kernel.buffers:
        if buffer.mode != "work":
            given.append(places[buffer.index])
            buffers.append((buffer.dtype, buffer.size))
        elif buffer.index not in shape.near:
            given.append(scratch.take(work_bytes(buffer) * shape.groups))
            buffers.append((buffer.dtype, stride_of(buffer) * shape.groups))
    return Launch(
        text,
        maker(text),
        tuple(buffers),
        tuple(given),
        shape.blocks,
        shape.threads,
        exact=kernel.strict or kernel.exact,
    )


def maker(text: str) -> Callable[[], Callable[..., None]]:
    """What defines the function of a text of ours: identifiers from counters, and numbers."""

    def make() -> Callable[..., None]:
        made: Callable[..., None] = execute(text, "kernel", {})[NAME]
        return made

    return make


def stride_of(buffer: Buffer) -> int:
    """Elements of scratch memory per group."""
    return work_bytes(buffer) // buffer.dtype.itemsize


class GpuScalars(Source):
    """Writes the bodies of math functions."""

    def write(self, expr: Expr) -> Text:
        return gpu_spelling(self, expr) or super().write(expr)


def gpu_spelling(writer: Source, expr: Expr) -> Text | None:
    """How an expression is spelled on a GPU where that differs."""
    if expr.op in _ROUNDING:
        return f"{expr.op}({writer.atom(expr.args[0], LOOSE)})", ATOM
    return None


class GpuKernel(KernelSource):
    """Writes one kernel for groups of lanes."""

    def __init__(self, kernel: Kernel, shape: Shape) -> None:
        super().__init__(Library(None, GpuScalars), kernel)
        self.shape = shape
        self.rows = shape.held
        own = self.rows.own if self.rows is not None else set()
        self.rewritten = rewritten(kernel) - own if shape.lanes > 1 else set()
        self.place = ""  # in what lanes keep of a row
        self.filled: set[int] = set()  # what of that has been read
        self.arriving: set[int] = set()  # by this pass
        self.early: dict[str, tuple[DType, int]] = {}  # arrays of what is read early
        self.shared = False  # inside a loop whose iterations the lanes share
        self.split: For | None = None  # that loop
        self.initial: dict[str, str] = {}  # what registers hold that were only declared
        self.deferred: set[int] = set()  # registers that a loop around combines
        self.scratch: dict[str, DType] = {}  # shared memory that groups combine through
        self.reading: set[int] = set()  # what some lanes may not have read yet

    def text(self) -> str:
        self.block(self.kernel.body)
        self.filled |= self.arriving
        body, self.lines = self.lines, []
        for note in self.kernel.notes:
            self.line("# " + "".join(c if " " <= c <= "~" else "?" for c in note))
        for comment in self.signature():
            self.line(f"# {comment}")
        self.prologue()
        names = [repr(b) for b in self.kernel.buffers if b.index not in self.shape.near]
        head = f"\ndef {NAME}({', '.join([*names, 'status', 'row'])}):"
        return "\n".join([head, *self.lines, *body, ""])

    def prologue(self) -> None:
        """Which lane and group this thread is, and the memory that is not given."""
        lanes, threads = self.shape.lanes, self.shape.threads
        self.line("thread = np.int64(cuda.threadIdx.x)")
        if lanes == threads:
            self.line("lane, group = thread, np.int64(cuda.blockIdx.x)")
        else:
            self.line(f"lane = thread % {lanes}")
            self.line(f"group = np.int64(cuda.blockIdx.x) * {threads // lanes} + thread // {lanes}")
        for name, dtype in self.scratch.items():
            count = lanes // self.shape.warp
            self.line(f"{name} = cuda.shared.array({count}, {storage(dtype)})")
        for buffer in self.kernel.buffers:
            if buffer.mode != "work":
                continue
            if self.rows is not None and buffer.index in self.rows.own:
                self.keep(repr(buffer), buffer.dtype)
            elif buffer.index in self.shape.near:
                kind = "local" if lanes == 1 else "shared"
                self.line(f"{buffer} = cuda.{kind}.array({buffer.size}, {storage(buffer.dtype)})")
            else:
                self.line(f"{buffer} = offset({buffer}, group * {stride_of(buffer)})")

        for name, (dtype, count) in self.early.items():
            self.line(f"{name} = cuda.local.array({count}, {storage(dtype)})")
        for key, slot in self.rows.loads.items() if self.rows is not None else ():
            if slot in self.filled:
                self.keep(f"h{slot}", DTYPES[key[1]])

    def keep(self, name: str, dtype: DType) -> None:
        """Elements of a row in registers."""
        assert self.rows is not None
        self.line(f"{name} = cuda.local.array({self.rows.turns * WIDTH}, {storage(dtype)})")

    def signature(self) -> list[str]:
        return [f"{b}: {b.mode} {b.dtype}[{b.size}]" for b in self.kernel.buffers]

    # -- values

    def write(self, expr: Expr) -> Text:
        if expr.op == "load":
            self.reads(expr)
        return self.division(expr) or gpu_spelling(self, expr) or super().write(expr)

    def division(self, expr: Expr) -> Text | None:
        """A quotient or rest of indices that 32 bits hold: a GPU divides 64 bits step by step."""
        if expr.op not in ("idiv", "irem") or expr.args[1].op != "const":
            return None
        known, divisor = index_range(expr.args[0], self.ranges), int(expr.args[1].data)
        if known is None or known[0] < 0 or known[1] >> 32 or not 0 < divisor < 1 << 32:
            return None
        sign, index = "//" if expr.op == "idiv" else "%", self.atom(expr.args[0], LOOSE)
        return f"np.int64(np.uint32({index}) {sign} np.uint32({divisor}))", ATOM

    def reads(self, load: Expr) -> None:
        if load.data[0] in self.rewritten:
            self.reading.add(load.data[0])

    def element(self, buffer: int, index: Expr) -> str:
        if self.rows is not None and buffer in self.rows.own:
            return f"a{buffer}[{self.place}]"
        return f"a{buffer}[{self.atom(index, LOOSE)}]"

    # -- statements

    def statement(self, statement: Statement) -> None:
        match statement:
            case Declare(register=register, value=value):
                super().statement(statement)
                self.initial.pop(repr(register), None)
                if value.op == "const":
                    self.initial[repr(register)] = number(value.data, self.held(register.index))
            case Update(register=register) | Assign(register=register):
                super().statement(statement)
                self.initial.pop(repr(register), None)
            case Store() if self.shape.lanes > 1 and not self.shared:
                self.only_first(statement)
            case Fail(condition=condition, code=code):
                self.line(f"if {self.atom(condition, LOOSE)}:")
                self.line("    if status[0] == 0:")
                self.line(f"        status[0] = (row << 32) | {code}")
                self.line("    return")
            case If():
                before = set(self.reading)
                super().statement(statement)
                self.reading |= before
            case _:
                super().statement(statement)

    def only_first(self, statement: Store) -> None:
        """A store of what every lane knows; names are made outside of the condition."""
        for expr in expressions(statement):
            self.value(expr)
        self.line("if lane == 0:")
        self.indent += "    "
        super().statement(statement)
        self.indent = self.indent[:-4]

    def loop(self, statement: For) -> None:
        if self.shared or self.shape.lanes == 1:
            super().loop(statement)
        elif statement.kind == "parallel":
            self.loop_around(statement)
        else:
            self.group_loop(statement)

    def loop_around(self, statement: For) -> None:
        """A loop of all lanes, whose next iteration may write what lanes read in this one."""
        before = set(self.reading)
        super().loop(statement)
        self.meet(statement, "    ")
        self.reading |= before

    def meet(self, statement: For, indent: str = "") -> None:
        """A barrier, if some lane may not yet have read what the statement writes."""
        if stores_to(statement, self.reading):
            self.line(f"{indent}cuda.syncthreads()")
            self.reading.clear()

    def head(self, name: str, bounds: tuple[str, ...], note: str) -> None:
        """Where every lane has as many turns as any other their number is written down: then what
        several of them read is on its way at once.  A loop that no lane runs twice is a condition;
        NVVM would unroll and hoist for it.
        """
        first, stop, step = (*bounds, "", "")[:3]
        if self.split is not None and name == f"i{self.split.variable.data}":
            turns, rest = divmod(exact_trips(self.split) or 1, int(step))
            if not rest and turns <= tuned.written_turns:
                turn = f"k{self.split.variable.data}"
                self.line(f"for {turn} in range({turns}):{note}")
                self.line(f"    {name} = {first} + {turn} * {step}")
                return
        if not (
            first.startswith(("lane", "group")) and stop.isdecimal() and int(stop) <= int(step)
        ):
            super().head(name, bounds, note)
            return
        self.line(f"{name} = {first}")
        self.line(f"if {name} < {stop}:{note}")

    def bounds(self, statement: For) -> tuple[str, ...]:
        if statement.kind == "parallel":
            return "group", self.atom(statement.stop, LOOSE), str(self.shape.groups)
        if statement is not self.split:
            return super().bounds(statement)
        start, stop = self.atom(statement.start, LOOSE), self.atom(statement.stop, LOOSE)
        first = "lane" if start == "0" else f"{start} + lane"
        return first, stop, str(self.shape.lanes)

    def group_loop(self, statement: For) -> None:
        """A loop that the lanes share, or one around such loops; then what they made together."""
        sums = shared_sums(statement)
        sums = {k: sums[k] for k in sums if k in self.registers and k not in self.deferred}
        before = {k: self.set_aside(k, combine) for k, combine in sums.items()}
        for name in self.changes.writes(statement):
            self.initial.pop(name, None)
        outer = self.deferred, self.shared
        self.deferred = self.deferred | set(sums)
        self.shared = statement.kind == "vector"
        self.split = statement if self.shared else None
        found = vectors_of(statement, self.kernel, self.shape.near) if self.shared else None
        if not self.shared:
            self.loop_around(statement)
        else:
            self.meet(statement)
            self.vector_loop(statement, found) if found else super().loop(statement)
        self.deferred, self.shared = outer
        for index, combine in sums.items():
            self.combine(index, combine, before[index])
        if statement.kind == "vector" and stores_to(statement, self.rewritten):
            self.line("cuda.syncthreads()")
            self.reading.clear()

    def vector_loop(self, statement: For, vectors: Vectors) -> None:
        """A loop of which every lane takes four iterations at a time."""
        self.forget(statement)
        self.filled |= self.arriving
        variable = statement.variable
        self.ranges[variable] = loop_range(statement, self.ranges)
        start, stop = self.atom(statement.start, LOOSE), self.atom(statement.stop, LOOSE)
        first = f"lane * {WIDTH}" if start == "0" else f"{start} + lane * {WIDTH}"
        bounds = first, stop, str(WIDTH * self.shape.lanes)
        early = self.read_early(statement, vectors, bounds)
        self.head(f"i{variable.data}", bounds, f"  # vector, by {WIDTH}")
        self.indent += "    "
        self.scopes.append([])
        for place, load in enumerate(vectors.loads):
            self.reads(load)
            if early:
                names = ", ".join(f"v{place}_{k}" for k in range(WIDTH))
                self.line(f"{names} = {self.kept(f'e{variable.data}_{place}', variable)}")
            else:
                self.load_vector(place, load, vectors.guards.get(load), variable)
        for k in range(WIDTH):
            self.one_of_four(statement, vectors, k)
        for place, store in enumerate(vectors.stores):
            parts = ", ".join(f"w{place}_{k}" for k in range(WIDTH))
            self.line(f"store4({store.buffer}, {self.atom(store.index, LOOSE)}, {parts})")
        for expr in self.scopes.pop():
            self.values.pop(expr, None)
        self.indent = self.indent[:-4]

    def kept(self, name: str, variable: Expr) -> str:
        """Four neighbours in an array of a lane, in this turn of a loop."""
        return ", ".join(f"{name}[k{variable.data} * {WIDTH} + {k}]" for k in range(WIDTH))

    def read_early(self, loop: For, vectors: Vectors, bounds: tuple[str, ...]) -> bool:
        """Read what all turns of a loop read before the first of them writes: a read after a write,
        which might be to the same place, waits for it."""
        turns, rest = divmod(exact_trips(loop) or 1, int(bounds[2]))
        only_read = {b.index for b in self.kernel.buffers if b.mode == "in"}
        if rest or not 1 < turns <= tuned.written_turns or not vectors.stores or vectors.guards:
            return False
        if turns * WIDTH * len(vectors.loads) > tuned.early_elements or (
            self.rows is not None and loop.variable in self.rows.passes
        ):
            return False
        if not vectors.loads or not all(load.data[0] in only_read for load in vectors.loads):
            return False
        self.head(f"i{loop.variable.data}", bounds, "  # read before anything is written")
        self.indent += "    "
        self.scopes.append([])
        for place, load in enumerate(vectors.loads):
            name = f"e{loop.variable.data}_{place}"
            self.early[name] = load.dtype, turns * WIDTH
            index = self.atom(load.args[0], LOOSE)
            self.line(f"{self.kept(name, loop.variable)} = load4(a{load.data[0]}, {index})")
        for expr in self.scopes.pop():
            self.values.pop(expr, None)
        self.indent = self.indent[:-4]
        return True

    def load_vector(self, place: int, load: Expr, guard: Expr | None, variable: Expr) -> None:
        """Four neighbours by name, or zeros where they are not needed."""
        names = [f"v{place}_{k}" for k in range(WIDTH)]
        number = None
        if self.rows is not None and variable in self.rows.passes:
            number = self.rows.loads.get(key_of(load, variable))
        kept = self.kept(f"h{number}", variable)
        if number in self.filled:
            self.line(f"{', '.join(names)} = {kept}")
            return
        read = f"{', '.join(names)} = load4(a{load.data[0]}, {self.atom(load.args[0], LOOSE)})"
        if guard is None:
            self.line(read)
            if number is not None:
                self.line(f"{kept} = {', '.join(names)}")
                self.arriving.add(number)
            return
        condition = self.atom(guard, LOOSE)
        self.line(f"{' = '.join(names)} = {storage(load.dtype)}(0)")
        self.line(f"if {condition}:")
        self.line(f"    {read}")

    def one_of_four(self, statement: For, vectors: Vectors, k: int) -> None:
        """The body for one of the four iterations; what it stores in vectors gets names."""
        outer, variable = dict(self.values), statement.variable
        self.scopes.append([])
        name = f"i{variable.data}"
        self.place = f"k{variable.data} * {WIDTH} + {k}"
        self.values = {e: v for e, v in outer.items() if not depends(e, variable)}
        self.values[variable] = (f"{name} + {k}", ADD) if k else (name, ATOM)
        for place, load in enumerate(vectors.loads):
            self.values[load] = f"v{place}_{k}", ATOM
        for inner in statement.body:
            if inner in vectors.stores:
                assert isinstance(inner, Store)
                place = vectors.stores.index(inner)
                self.line(f"w{place}_{k} = {self.atom(inner.value, LOOSE)}")
            elif not (k and isinstance(inner, Fail) and not depends(inner.condition, variable)):
                self.statement(inner)
            self.forget(inner)
        self.scopes.pop()
        self.values = outer

    def set_aside(self, index: int, combine: str) -> str | None:
        """Have a register hold the neutral element; the name of what it held before, if needed."""
        start = neutral(combine, self.held(index))
        if self.initial.get(f"r{index}") == start:
            return None
        name = f"before{index}"
        self.line(f"{name} = r{index}")
        self.line(f"r{index} = {start}")
        return name

    def held(self, index: int) -> DType:
        """The type that a register is carried in."""
        return F64 if index in self.wide else self.registers[index]

    def combine(self, index: int, combine: str, before: str | None) -> None:
        """Combine a register over the lanes of the group."""
        dtype, lanes = self.held(index), self.shape.lanes
        travels = dtype if dtype.kind == "f" or dtype.bits >= 32 else I32
        name, text = group_function(combine, travels, lanes, self.shape.warp)
        if name not in self.library.known:
            self.library.known.add(name)
            if combine in ("min", "max") and travels.kind == "f":
                self.library.helper(f"{combine}imum_{travels}")
            self.library.parts.append(text)
        place = "None"
        if lanes > self.shape.warp:
            place = f"shared_{travels}"
            self.scratch[place] = travels
        value = f"r{index}" if travels is dtype else f"{storage(travels)}(r{index})"
        total = f"{name}({value}, {place})"
        self.line(f"r{index} = " + (total if travels is dtype else f"{storage(dtype)}({total})"))
        if before is not None:
            self.together(index, combine, before)

    def together(self, index: int, combine: str, before: str) -> None:
        """Add what a register held before the loop."""
        dtype = self.held(index)
        other = Scalars().make("arg", dtype, (), before)
        self.values[other] = (before, ATOM)
        super().update(Register(index, dtype), combine, other)
        del self.values[other]


def neutral(combine: str, dtype: DType) -> str:
    """The element that changes nothing, as a typed literal."""
    if combine in ("add", "or", "xor"):
        return number((0.0).hex() if dtype.kind == "f" else 0, dtype)
    if combine == "mul":
        return number((1.0).hex() if dtype.kind == "f" else 1, dtype)
    if dtype.kind == "f":
        return number("inf" if combine == "min" else "-inf", dtype)
    if dtype is BOOL:
        return "False" if combine == "max" else "True"
    low, high = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
    if dtype.kind == "u":
        low, high = 0, (1 << dtype.bits) - 1
    return number(
        {"min": high, "max": low, "and": high if dtype.kind == "u" else -1}[combine], dtype
    )
