"""Counted loops of an LLVM function, as text."""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.llvm.module import FunctionWriter, Module
from graphc.codegen.llvm.target import LEFT


class LoopWriter(FunctionWriter):
    """Writes loops. An innermost one that is not written in vectors is marked for LLVM."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.groups: list[str] = []  # access groups of the vector loops around
        self.loops = 0
        self.left = 0  # loops that are marked

    def counted(
        self,
        start: str,
        stop: str,
        step: int,
        kind: str,
        body: Callable[[str], None],
        single: Callable[[], bool] = lambda: False,
    ) -> None:
        """A bottom-tested loop from start to stop, skipped when empty. `rest` is a short one.

        `single` says whether it must not become vectors, and is asked of innermost loops alone.
        """
        self.loops += 1
        loops, left = self.loops, self.left
        name = self.fresh("")
        top, end, before = f"loop{name}", f"end{name}", f"before{name}"
        i, following = f"%i{name}", f"%n{name}"
        self.lines += [f"  br label %{before}", f"{before}:"]
        if not _certainly_runs(start, stop):
            runs = self.emit(f"icmp slt i64 {start}, {stop}")
            self.lines.append(f"  br i1 {runs}, label %{top}, label %{end}")
        else:
            self.lines.append(f"  br label %{top}")
        head = len(self.lines)
        body(i)
        marked = self.loops == loops and kind != "rest"
        note = self.loop_note("single" if single() else kind) if marked else ""
        self.left += bool(note)
        # The latch is a block of its own, so the phi can name it whatever the body ends with.
        phi = f"  {i} = phi i64 [ {start}, %{before} ], [ {following}, %latch{name} ]"
        self.lines[head:head] = [f"{top}:", phi]
        self.lines += [
            f"  br label %latch{name}",
            f"latch{name}:",
            *advanced(name, step, self.left == left),
            f"  %c{name} = icmp slt i64 {following}, {stop}",
            f"  br i1 %c{name}, label %{top}, label %{end}{note}",
            f"{end}:",
        ]

    def loop_note(self, kind: str) -> str:
        if kind == "single":
            alone = self.module.note('!"llvm.loop.vectorize.width"', "i32 1")
            return f", {LEFT} {self.module.note(alone, itself=True)}"
        # Nothing asks for vectors by force: that would let LLVM reorder strict sums.
        group = self.groups[-1:] if kind == "vector" else []
        parts = [self.module.note('!"llvm.loop.parallel_accesses"', *group)] if group else []
        return f", {LEFT} {self.module.note(*parts, itself=True)}"


def advanced(name: str, step: int, final: bool) -> list[str]:
    """The count of a loop for its next iteration.

    Where addresses are `final` it is one of which LLVM knows nothing: loop strength reduction,
    which takes as long as the rest of code generation together, then finds no work.
    """
    if not final:
        return [f"  %n{name} = add nsw i64 %i{name}, {step}"]
    return [
        f"  %m{name} = add nsw i64 %i{name}, {step}",
        f'  %n{name} = call i64 asm "", "=r,0"(i64 %m{name})',
    ]


def lane_mask(w: FunctionWriter, total: str, at: str, lanes: int) -> str:
    """Which of so many lanes are iterations: those from `at`, of which there is one, to `total`."""
    if at.isdigit() and total.isdigit():
        return mask_of(w, str((1 << min(lanes, int(total) - int(at))) - 1), lanes)
    left = w.emit(f"sub nsw i64 {total}, {at}")
    left = w.emit(f"call i64 @llvm.smin.i64(i64 {left}, i64 {lanes})")
    bits = w.emit(f"lshr i64 -1, {w.emit(f'sub nsw i64 64, {left}')}")
    if lanes < 64:
        bits = w.emit(f"trunc i64 {bits} to i{lanes}")
    return w.emit(f"bitcast i{lanes} {bits} to <{lanes} x i1>")


def mask_of(w: FunctionWriter, bits: str, lanes: int) -> str:
    """The mask of the lowest bits; those above are zero."""
    # They stay zero in a register of which LLVM knows nothing: it widens the mask of a vector of
    # less than 128 bits, and where mask registers run out it stores and loads sixteen bits for
    # eight, with what lies above them.
    if lanes < 16:
        bits = w.emit(f'call i64 asm "", "=r,0"(i64 {bits})')
    if lanes < 64:
        bits = w.emit(f"trunc i64 {bits} to i{lanes}")
    return w.emit(f"bitcast i{lanes} {bits} to <{lanes} x i1>")


def _certainly_runs(start: str, stop: str) -> bool:
    """Both bounds are literals and the loop is not empty."""
    return start.lstrip("-").isdigit() and stop.lstrip("-").isdigit() and int(start) < int(stop)
