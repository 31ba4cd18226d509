"""Vector loops of a kernel as vector instructions.

LLVM's loop vectoriser costs more than everything else it does for a kernel, and needs most of its
pipeline to run first.  A loop that `VectorFacts` finds simple is written as what it would make of
it:

    i of 0..count, a whole number of vectors at a time:     what is the same for all i: ahead of it
        a vector per value, sums in a vector per register
    the sums of the lanes

A loop that looks for the first place where something holds ends when a lane has found one.

What is left of other counts follows: whole vectors, and one that a mask cuts where the machine has
masks.  Where it has none, a scalar loop does those iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from graphc.codegen.llvm.gathers import ScatteredWriter
from graphc.codegen.llvm.loops import lane_mask
from graphc.codegen.llvm.vector_facts import RowFacts, Shape, VectorFacts, shape_of
from graphc.codegen.tuning import tuned
from graphc.ir.types import BOOL
from graphc.loops.facts import dissolves, loop_range
from graphc.loops.nest import (
    Assign,
    Declare,
    Expr,
    Fail,
    For,
    If,
    Prefetch,
    Statement,
    Store,
    Update,
    expressions,
)

if TYPE_CHECKING:
    from graphc.codegen.llvm.kernel import KernelWriter


class VectorLoop(ScatteredWriter):
    """Writes one loop."""

    sought: Update | None = None  # the statement that ends it
    way_out = ""  # where it then goes on

    # -- the loop

    def loop(self, start: str, stop: str, count: int | None) -> None:
        """All iterations from start to stop; how many there are, where that is known."""
        k, name = self.kernel, self.kernel.fresh("")
        self.start = start
        self.straight = count == self.lanes * self.shape.copies
        if (sought := self.facts.sought()) is not None:
            self.sought, self.way_out = sought, f"found{name}"
        k.lines += [f"  br label %before{name}", f"before{name}:"]
        short = k.granules(self.facts.loop) if count is None else 0
        if count is None and not short:
            runs = k.emit(f"icmp slt i64 {start}, {stop}")
            k.lines.append(f"  br i1 {runs}, label %ahead{name}, label %end{name}")
        else:
            k.lines.append(f"  br label %ahead{name}")
        k.lines.append(f"ahead{name}:")
        total = k.emit(f"sub nsw i64 {stop}, {start}") if count is None else str(count)
        whole = self.whole(total) if not short else "0"
        outer, k.lines = k.lines, []
        k.scopes.append([])
        if short:
            assert k.short is not None
            self.few(short, k.short.granule, total)
        else:
            self.vectors(whole, total)
        body, k.lines = k.lines, outer
        k.lines += self.before
        k.lines += body
        if self.sought is not None:
            k.lines += [f"  br label %{self.way_out}", f"{self.way_out}:"]
            k.update(self.sought.register, "min", k.value(self.sought.value.args[2]))
        for register, combine in self.facts.carried.items():
            self.collect(register, combine)
        for code, slot in self.failures.items():
            failed = k.emit(f"load {self.kind(BOOL)}, ptr {slot}")
            k.fail(k.emit(self.across("or", BOOL, failed)), code)
        for expr in k.scopes.pop():
            k.values.pop(expr, None)
        k.lines += [f"  br label %end{name}", f"end{name}:"]

    def whole(self, total: str) -> str:
        """How many of all iterations are done all copies at a time."""
        step = self.lanes * self.shape.copies
        if not self.shape.apart:
            return "0"
        if total.isdigit():
            return str(int(total) // step * step)
        left = self.kernel.emit(f"urem i64 {total}, {step}")  # three copies are no power of two
        return self.kernel.emit(f"sub nsw i64 {total}, {left}")

    def vectors(self, whole: str, total: str) -> None:
        """The iterations up to `whole`, and the rest: at once where its vectors are counted."""
        copies, lanes = self.shape.copies, self.lanes
        self.part("0", whole, copies)
        if whole.isdigit() and total.isdigit() and self.shape.apart:
            self.total = total
            if left := int(total) - int(whole):
                self.part(whole, str(int(whole) + lanes), -(-left // lanes))
        elif self.shape.masked and self.shape.apart and copies > 1:
            self.total = total
            self.rest(whole, copies)
        elif copies > 1 or self.shape.masked:
            self.total = total
            self.part(whole, total, 1)

    def few(self, granules: int, granule: int, total: str) -> None:
        """All of a short row: of its vectors only the last one is cut."""
        lanes, self.total = self.lanes, total
        self.full = (granules - 1) * granule
        count = -(-granules * granule // lanes)
        if not self.shape.apart and count > 1:
            self.full = 0
            self.part("0", total, 1)
            return
        for first in range(0, count, self.shape.copies):
            copies = min(self.shape.copies, count - first)
            self.part(str(first * lanes), str((first + copies) * lanes), copies)

    def rest(self, whole: str, copies: int) -> None:
        """What is left of a count that is known when arrays come: a jump to as many whole vectors
        as there are, the last of them first, and one that a mask cuts. Short loops are no more.

            switch vectors:    3:  vector 1    2:  vector 0    1:  the last one, masked    0:
        """
        k, name, lanes = self.kernel, self.kernel.fresh(""), self.lanes
        left = k.emit(f"sub nsw i64 {self.total}, {whole}")
        left = k.emit(f"add nsw i64 {left}, {lanes - 1}")
        vectors = k.emit(f"lshr i64 {left}, {lanes.bit_length() - 1}")
        last = k.emit(f"add nsw i64 {vectors}, -1")
        last = k.emit(f"add nsw i64 {whole}, {k.emit(f'mul nsw i64 {last}, {lanes}')}")
        cases = " ".join(f"i64 {n}, label %rest{n}_{name}" for n in range(1, copies + 1))
        k.lines.append(f"  switch i64 {vectors}, label %rest0_{name} [ {cases} ]")
        for n in range(copies, 0, -1):
            k.lines.append(f"rest{n}_{name}:")
            self.first_copy = max(0, n - 2)
            self.vector(last if n == 1 else whole, masked=n == 1)
            k.lines.append(f"  br label %rest{n - 1}_{name}")
        k.lines.append(f"rest0_{name}:")
        self.first_copy = 0

    def vector(self, at: str, masked: bool) -> None:
        """One vector of the rest."""
        self.at = at
        self.pointers.clear()
        self.known = [{}]
        self.masks = [self.cut(0) if masked else ""]
        self.block(self.facts.loop.body)

    def part(self, first: str, last: str, copies: int) -> None:
        """Iterations from first to last, with masks if there is a `total`."""
        step = self.lanes * copies

        def body(at: str) -> None:
            self.at = at
            self.pointers.clear()
            self.turned.clear()
            self.known = [{} for _ in range(copies)]
            self.masks = [self.cut(copy * self.lanes) for copy in range(copies)]
            self.block(self.facts.loop.body)

        if first.isdigit() and last.isdigit() and int(last) <= int(first) + step:
            if first != last:
                body(first)
        else:
            self.kernel.counted(first, last, step, "rest", body)

    def cut(self, ahead: int) -> str:
        """The mask of a vector so far ahead, if it may not be whole."""
        if not self.total or not self.shape.masked:
            return ""
        at = int(self.at) + ahead if self.at.isdigit() else 0
        if self.at.isdigit() and at + self.lanes <= self.full:
            return ""
        if self.at.isdigit():
            if self.total.isdigit() and at + self.lanes <= int(self.total):
                return ""
            if self.kernel.granules(self.facts.loop):
                return self.kernel.row_mask(self.facts.loop, at, self.lanes)
            return lane_mask(self.kernel, self.total, str(at), self.lanes)
        return lane_mask(self.kernel, self.total, self.at, self.lanes)

    # -- statements

    def turns(self) -> Iterator[None]:
        """Each copy after the other."""
        for copy, (mask, values) in enumerate(
            zip(self.masks, self.known, strict=True), self.first_copy
        ):
            self.copy, self.mask, self.values = copy, mask, values
            yield

    def block(self, body: Sequence[Statement]) -> None:
        """Write statements, each for all copies, in a scope of their own."""
        outer = [set(values) for values in self.known]
        runs = (self.facts.woven.get(id(s), ()) for s in body)
        woven = {id(store) for run in runs for store in run[1:]}  # written with the first
        for statement in body:
            if id(statement) in woven:
                continue
            self.statement(statement)
            self.forget(statement)
        for values, before in zip(self.known, outer, strict=True):
            for expr in values.keys() - before:
                del values[expr]

    def forget(self, statement: Statement) -> None:
        """Values that read what the statement writes have to be computed again."""
        for expr in self.readers.stale(statement):
            for values in self.known:
                values.pop(expr, None)

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, For):
            short = dissolves(statement, in_vector=True)
            (self.copies if short else self.repeat)(statement)
        elif isinstance(statement, If):
            self.when(statement)
        elif isinstance(statement, Fail) and self.facts.fixed(statement.condition):
            value = self.fixed(statement.condition)
            with self.ahead():
                self.kernel.fail(value, statement.code)
        elif isinstance(statement, Prefetch):
            self.kernel.prefetch(statement.buffer, self.first(statement.index), statement.count)
        elif run := self.facts.woven.get(id(statement)):
            rows = [[self.value(store.value) for store in run] for _ in self.turns()]
            for row, _ in zip(rows, self.turns(), strict=True):
                self.weave(run, row)
        elif statement is self.sought:
            self.seek(statement)
        else:
            root = expressions(statement)[-1]
            values = [self.value(root) for _ in self.turns()]
            for value, _ in zip(values, self.turns(), strict=True):
                self.finish(statement, value)

    def seek(self, update: Update) -> None:
        """Go on where nothing is found in any copy; else what is found ends the loop."""
        k, name = self.kernel, self.kernel.fresh("")
        condition = update.value.args[0]
        found = [self.holds(condition) for _ in self.turns()]
        some = reduce(lambda x, y: self.emit(f"or i1 {x}, {y}"), found)
        some = self.emit_one(self.across("or", BOOL, some))
        note = k.module.note('!"branch_weights"', "i32 1", "i32 1048575")
        k.lines += [f"  br i1 {some}, label %hit{name}, label %miss{name}, !prof {note}"]
        k.lines.append(f"hit{name}:")
        places = [self.value(update.value) for _ in self.turns()]
        for place, _ in zip(places, self.turns(), strict=True):
            self.finish(update, place)
        k.lines += [f"  br label %{self.way_out}", f"miss{name}:"]

    def holds(self, condition: Expr) -> str:
        """A condition in the lanes that there are, as what a branch may look at."""
        value = self.emit(f"freeze i1 {self.value(condition)}")
        return self.emit(f"and i1 {value}, {self.mask}") if self.mask else value

    def when(self, statement: If) -> None:
        """Statements of the lanes that a condition holds in, unless it holds in none."""
        k, name = self.kernel, self.kernel.fresh("")
        masks, was_guarded = self.masks, self.is_guarded
        found = [self.holds(statement.condition) for _ in self.turns()]
        some = reduce(lambda x, y: self.emit(f"or i1 {x}, {y}"), found)
        some = self.emit_one(self.across("or", BOOL, some))
        k.lines += [f"  br i1 {some}, label %some{name}, label %none{name}", f"some{name}:"]
        known = dict(self.pointers), dict(self.turned), dict(self.moving)
        self.masks, self.is_guarded = found, True
        self.block(statement.body)
        self.masks, self.is_guarded = masks, was_guarded
        self.pointers, self.turned, self.moving = known  # what is computed there is not known after
        k.lines += [f"  br label %none{name}", f"none{name}:"]

    def finish(self, statement: Statement, value: str) -> None:
        """What one copy does with the value of its statement."""
        match statement:
            case Declare(register=register):
                self.declare(register, value)
            case Assign(register=register):
                self.set(register, value)
            case Update(register=register, combine=combine):
                self.update(register, combine, value)
            case Store(buffer=buffer, index=index):
                self.store(buffer, index, value)
            case Fail(code=code):
                self.fail(value, code)

    def fail(self, value: str, code: int) -> None:
        """Note in which lanes a statement fails: whether there are any is asked after the loop."""
        k, kind = self.kernel, self.kind(BOOL)
        if self.mask:
            value = self.emit(f"and i1 {value}, {self.mask}")
        if code not in self.failures:
            self.failures[code] = k.at_entry(f"alloca {kind}")
            with self.ahead():
                self.set_slot(self.failures[code], BOOL, "zeroinitializer")
        before = k.emit(f"load {kind}, ptr {self.failures[code]}")
        self.set_slot(self.failures[code], BOOL, self.emit(f"or i1 {before}, {value}"))

    def copies(self, statement: For) -> None:
        """A short loop as one copy of its body per iteration."""
        variable = statement.variable
        self.ranges[variable] = loop_range(statement, self.ranges)
        for i in range(int(statement.start.data), int(statement.stop.data)):
            self.turn(variable, str(i), statement.body)

    def repeat(self, statement: For) -> None:
        """A longer loop that all lanes run; nothing that it writes is known ahead of a turn."""
        variable, k = statement.variable, self.kernel
        self.ranges[variable] = loop_range(statement, self.ranges)
        self.forget(statement)
        body = partial(self.turn, variable, body=statement.body)
        k.counted(str(statement.start.data), str(statement.stop.data), 1, "rest", body)

    def turn(self, variable: Expr, at: str, body: Sequence[Statement]) -> None:
        """One turn of an inner loop."""
        self.kernel.values[variable] = at
        self.moving.clear()
        self.block(body)
        self.moving.clear()
        del self.kernel.values[variable]


def vector_loops(
    kernel: KernelWriter, facts: VectorFacts, start: str, stop: str, count: int | None
) -> str:
    """Write a loop as far as vectors reach; what is left begins where the answer says."""
    shape = shape_of(facts, kernel.module.target, count)
    if shape is None:
        return start
    kernel.loops += 1
    if shape.masked or (count is not None and count % shape.lanes == 0):
        VectorLoop(kernel, facts, shape).loop(start, stop, count)
        return stop
    middle = whole_vectors(kernel, facts, shape, start, stop, count)
    while goes_on_in_halves(facts, shape):
        count = count and count % shape.lanes
        shape = Shape(shape.lanes // 2, 1, masked=False)
        if count is None or count >= shape.lanes:
            middle = whole_vectors(kernel, facts, shape, middle, stop, count)
    return middle


def goes_on_in_halves(facts: VectorFacts, shape: Shape) -> bool:
    """Rows of a block that are left would, one by one, take as long as the others together."""
    in_block = isinstance(facts, RowFacts) and facts.loop.kind == "vector"
    return in_block and shape.lanes > 4 and facts.weight <= tuned.heavy_weight


def whole_vectors(
    kernel: KernelWriter, facts: VectorFacts, shape: Shape, start: str, stop: str, count: int | None
) -> str:
    """Write the part of a loop that fills vectors; where it ends."""
    whole = str(count // shape.lanes * shape.lanes) if count is not None else ""
    if not whole:
        many = kernel.emit(f"sub nsw i64 {stop}, {start}")
        many = kernel.emit(f"call i64 @llvm.smax.i64(i64 {many}, i64 0)")
        whole = kernel.emit(f"and i64 {many}, {-shape.lanes}")
    middle = kernel.emit(f"add nsw i64 {start}, {whole}")
    VectorLoop(kernel, facts, shape).loop(start, middle, int(whole) if count else None)
    return middle
