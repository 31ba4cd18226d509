"""scatter as LLVM IR: positions are looked at one after another, each row of updates in vectors.

check every position, unless those outside are dropped    a bad one changes nothing
copy x, unless the result lies in its memory
for each position: row = row `mode` updates               the last of equal ones wins
"""

from __future__ import annotations

from functools import cache

from graphc.base.record import record
from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import (
    I1,
    I32,
    I64,
    Local,
    Module,
    Number,
    Operand,
    Pointer,
    Value,
    Writer,
    copy_bytes,
    native,
)
from graphc.codegen.positions import parts, position, widening
from graphc.codegen.sorting.lanes import Lanes
from graphc.ir.types import DType
from graphc.ops.index.scatter import STRIDE

OUT_OF_RANGE = 1
_FLOATS = {32: "float", 64: "double"}
# What a mode does to an old element: an instruction for each kind, or the relation in which a new
# one takes its place.
_INSTRUCTIONS = {"add": ("fadd", "add"), "mul": ("fmul", "mul")}
_RELATIONS = {"min": ("olt", "slt", "ult"), "max": ("ogt", "sgt", "ugt")}


@record(frozen=True)
class Scatter:
    """What a kernel is written for. `is_narrow`: rows of one element; `is_shared`: threads take
    rows lo..hi of the result each, and go over all positions.
    """

    element: DType
    index: DType
    mode: str
    is_narrow: bool
    is_shared: bool

    @property
    def scalar(self) -> str:
        """The type of an element in LLVM, or of a part of a complex one."""
        real = self.element.real
        return _FLOATS[real.bits] if real.is_float else f"i{real.bits}"

    def kind(self, count: int) -> str:
        """The type of so many elements."""
        parts = count * self.element.itemsize // self.element.real.itemsize
        return self.scalar if parts == 1 else f"<{parts} x {self.scalar}>"

    def combined(self, f: Writer, old: Value, new: Value) -> Value:
        """What becomes of an element, or of a vector of them."""
        kind = new.kind
        if self.mode in _INSTRUCTIONS:
            name = _INSTRUCTIONS[self.mode][0 if self.element.real.is_float else 1]
            return f.new(kind, f"{name} {kind} {old.text}, {new.text}")
        taken = self.is_taken(f, old, new)
        return f.new(
            kind, f"select {taken.kind} {taken.text}, {kind} {new.text}, {kind} {old.text}"
        )

    def is_taken(self, f: Writer, old: Value, new: Value) -> Value:
        """Whether the new of two elements is the extreme one."""
        kind = new.kind
        flags = kind.replace(self.scalar, I1)
        floating, signed, unsigned = _RELATIONS[self.mode]
        if not self.element.real.is_float:
            relation = signed if self.element.kind == "i" else unsigned
            return f.new(flags, f"icmp {relation} {kind} {new.text}, {old.text}")
        beyond = f.new(flags, f"fcmp {floating} {kind} {new.text}, {old.text}")
        nan = f.new(flags, f"fcmp uno {kind} {new.text}, {new.text}")
        return f.new(flags, f"or {flags} {beyond.text}, {nan.text}")

    def write(self, f: Writer, count: int, target: Value, source: Value) -> None:
        """Combine so many elements that lie at two addresses."""
        kind, align = self.kind(count), self.element.real.itemsize
        new = f.new(kind, f"load {kind}, ptr {source.text}, align {align}")
        store = f"store {kind} {{}}, ptr {target.text}, align {align}"
        if self.mode == "set":
            f.do(store.format(new.text))
            return
        old = f.new(kind, f"load {kind}, ptr {target.text}, align {align}")
        if self.mode in _RELATIONS and count == 1:
            # Extremes change ever less often: where nothing is stored, nothing waits for it.
            with f.when(self.is_taken(f, old, new)):
                f.do(store.format(new.text))
        else:
            f.do(store.format(self.combined(f, old, new).text))

    def write_row(
        self, f: Writer, machine: Target, target: Value, source: Value, width: Value
    ) -> None:
        """Combine two rows."""
        if self.is_narrow:
            self.write(f, 1, target, source)
            return
        nbytes = self.element.itemsize
        lanes = machine.lanes(nbytes)
        whole = width // lanes
        with f.loop(0, whole) as vector:
            start = vector * (lanes * nbytes)
            self.write(f, lanes, target + start, source + start)
        rest = f.local(whole * (lanes * nbytes))
        while lanes > 1:  # of what is left, halves of a vector, quarters ...
            lanes //= 2
            with f.when((width & lanes) != 0):
                self.write(f, lanes, target + rest, source + rest)
                rest += lanes * nbytes

    def are_outside(
        self, f: Writer, machine: Target, index: Value, start: Value, rows: Value
    ) -> Value:
        """Whether one of a vector of positions is outside of -rows..rows."""
        lanes = Lanes(machine, 64)
        kind, at = f"<{lanes.count} x i{self.index.bits}>", index + start * self.index.itemsize
        given = f.new(kind, f"load {kind}, ptr {at.text}, align {self.index.itemsize}")
        wide = given if kind == lanes.kind else given.cast(widening(self.index), lanes.kind)
        shifted = wide + lanes.splat(f, rows)
        inside = lanes.less(f, shifted, lanes.splat(f, rows + rows))
        bits = f"i{lanes.count}"
        return f.new(bits, f"bitcast {lanes.mask} {inside.text} to {bits}") != -1


def _check(
    f: Writer, machine: Target, kind: Scatter, index: Value, count: Value, rows: Value, flag: Value
) -> None:
    """Return a failure if a position is outside."""
    lanes = machine.lanes(8)
    is_wrong: Local = f.local(Value(f, I1, "false"))
    with parts(f, flag, 0, count, STRIDE) as (first, last):
        whole = (last - first) // lanes
        with f.loop(0, whole) as vector:
            start = first + vector * lanes
            is_wrong.set(is_wrong | kind.are_outside(f, machine, index, start, rows))
        with f.loop(first + whole * lanes, last) as k:
            shifted = position(f, kind.index, index, k) + rows
            is_wrong.set(is_wrong | (shifted.below(rows + rows) ^ 1))
    with f.when(is_wrong):
        f.give(OUT_OF_RANGE)


def _copy(
    f: Writer, machine: Target, x: Value, out: Value, start: Value, stop: Value, flag: Value
) -> None:
    """Copy bytes of x, unless the result lies there."""
    step = 4 * machine.vector_bytes
    kind = f"<{step} x i8>"
    with f.when(x != out), parts(f, flag, start, stop, 4 * STRIDE) as (first, last):
        whole = (last - first) // step
        with f.loop(0, whole) as k:
            at = first + k * step
            held = f.new(kind, f"load {kind}, ptr {(x + at).text}, align 1")
            f.do(f"store {kind} {held.text}, ptr {(out + at).text}, align 1")
        rest = first + whole * step
        copy_bytes(f, out + rest, x + rest, last - rest)


@cache
def scatter_text(machine: Target, kind: Scatter) -> str:
    """The kernel; its params are rows and their width, positions, and whether those outside of the
    rows are dropped.
    """

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        rows, width, count, drop = (params[k] for k in range(4))
        x, index, updates, out, flag = (bufs.pointer(k) for k in (0, 1, 2, 3, -1))
        begin, end = (lo, hi) if kind.is_shared else (Value(f, I64, "0"), rows)
        nbytes: Operand = kind.element.itemsize if kind.is_narrow else width * kind.element.itemsize
        with f.when(drop == 0):
            _check(f, machine, kind, index, count, rows, flag)
        _copy(f, machine, x, out, begin * nbytes, end * nbytes, flag)
        here = end - begin
        step = Value(f, I64, str(STRIDE)) // width.most(1) + 1
        with parts(f, flag, 0, count, step) as (first, last), f.loop(first, last) as k:
            given = position(f, kind.index, index, k)
            row = (given < 0).choose(given + rows, given)
            with f.when((row - begin).below(here)):
                kind.write_row(f, machine, out + row * nbytes, updates + k * nbytes, width)
        f.give(f.half(0))

    return Module(machine.triple).text([kernel])
