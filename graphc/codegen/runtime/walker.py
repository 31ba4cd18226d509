"""The native step-table walker.

`walk(frame)` runs one step table (see `graphc.runtime.load.table`) from its first row to an end row
that releases nothing (see `ready_queue`), and returns 0, the first nonzero status of a kernel, or a
negative status of its own.  The frame holds everything that a run needs, so that concurrent runs
only need frames of their own.  A frame with a log has it noted when each row begins.

Before the operands of a kernel lies the address of the cancel flag (`bufs[-1]`): what takes long in
one unit looks at it itself.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    ACQUIRE,
    I8,
    I32,
    RELAXED,
    Operand,
    Pointer,
    Struct,
    Value,
    Writer,
    copy_bytes,
    native,
)
from graphc.codegen.runtime.channels import next_segment, receive, send
from graphc.codegen.runtime.stacks import open_stack, pop, push
from graphc.codegen.runtime.thread_pool import fork
from graphc.codegen.runtime.thread_pool_work import alone
from graphc.codegen.runtime.tracing import mark
from graphc.runtime.call.failure import BAD_ROW, CANCELLED
from graphc.runtime.load import table
from graphc.runtime.load.layouts import FrameWords

_LOWER_HALF = (1 << 32) - 1


@native(I32, is_public=True)
def walk(f: Writer, frame: Struct[FrameWords]) -> None:
    """Run the table of a frame."""
    Walk(f, frame).run()


@native(I32, is_public=True)
def acquire(f: Writer, flag: Pointer) -> None:
    """Take something that may be free (0) or in use (1); whether that succeeded."""
    f.give(flag.cas(0, 1, ACQUIRE).cast("zext", I32))


class Walk:
    """Writes the walker: a method for each kind of row, which may go elsewhere than to the next."""

    def __init__(self, f: Writer, frame: Struct[FrameWords]) -> None:
        self.f, self.frame, self.is_traced = f, frame, frame.log.is_some
        self.table, self.kernels, self.parameters = frame.table, frame.kernels, frame.parameters
        self.threads = frame.threads
        self.cancel, self.bases = frame.at("cancel"), frame.at("bases")
        operands = f.room(frame.operands + 2)
        operands[1] = self.cancel
        self.operands = operands.at(2)
        self.at = f.local(0)  # the word where the row begins

    def run(self) -> None:
        """Write the loop over the rows."""
        f = self.f
        with f.forever():
            with f.when(self.is_traced):
                mark(f, self.frame, self.at << 1)
            with f.when(self.cancel.load(order=RELAXED) != 0):
                self.stop(f.half(CANCELLED))
            self.row = self.table.at(self.at)
            self.size = self.row[1]
            following = self.at + self.size
            with f.switch(self.row[0]) as case:
                for opcode, name in enumerate(table.NAMES):
                    with case(opcode):
                        getattr(self, f"_{name}")()
                        self.go_on(following)
            self.stop(f.half(BAD_ROW))

    def go_on(self, position: Operand) -> None:
        if self.f.is_open:
            self.at.set(position)
            self.f.again()

    def stop(self, status: Value) -> None:
        self.frame.row = self.at
        self.f.give(status)

    def check(self, status: Value) -> None:
        """Stop if a row has failed."""
        with self.f.when(status != 0):
            self.stop(status)

    def address(self, word: int) -> Value:
        """The address of the operand at a word of the row."""
        return self.bases.pointer(self.row[word]) + self.row[word + 1]

    # -- the rows, by their names in the table

    def _end(self) -> None:
        f = self.f
        with f.when(self.size == 2):
            f.give(0)
        with f.when(self.frame.agenda.is_null):  # messages of other processes note nothing there
            self.go_on(self.at + self.size)
        released = next_segment(f, self.frame, self.row, self.size)
        with f.when(released < 0):
            self.stop(f.half(CANCELLED))
        self.go_on(released)

    def _call(self) -> None:
        f, row = self.f, self.row
        with f.loop(0, row[6]) as k:
            operand = row.at(7 + (k << 1))
            self.operands[k] = self.bases.pointer(operand[0]) + operand[1]
        kernel, units, split = row[2], row[3], row[4]
        grain, poll = split & _LOWER_HALF, split >> 32
        step = self.kernels.pointer(kernel), self.operands, self.parameters.at(row[5]), units
        status = f.local(0, I32)
        with f.when((self.threads > 1) & (grain > 0) & (units > grain)):
            status.set(fork(f, *step, grain, self.threads, poll, self.cancel))
        with f.otherwise():
            status.set(alone(f, *step, poll, self.cancel))
        with f.when(status != 0):
            self.frame.kernel = kernel
            self.stop(status)

    def _jump(self) -> None:
        self.go_on(self.row[2])

    def _branch(self) -> None:
        """The byte at the operand decides: 0 takes the target, anything else goes on."""
        with self.f.when(self.address(3).load(I8) == 0):
            self.go_on(self.row[2])

    def _bump(self) -> None:
        f = self.f
        with f.loop(1, self.size >> 1) as k:
            move = self.row.at(k << 1)
            register = self.bases.at(move[0])
            register.store(register.load() + move[1])

    def _set(self) -> None:
        row = self.row
        is_number = row[3] < 0
        start = self.bases[is_number.choose(0, row[3])]
        self.bases[row[2]] = is_number.choose(0, start) + row[4]

    def _loop(self) -> None:
        left = self.bases[self.row[2]] - 1
        self.bases[self.row[2]] = left
        with self.f.when(left > 0):
            self.go_on(self.row[3])

    def _copy(self) -> None:
        target, source = self.address(3), self.address(5)
        with self.f.when(target != source):
            copy_bytes(self.f, target, source, self.row[2])

    def _same(self) -> None:
        with self.f.when(self.address(3) != self.address(5)):
            self.go_on(self.row[2])

    def _rotate(self) -> None:
        read, write, spare = (self.bases.at(self.row[k]) for k in (2, 3, 4))
        written, spared = write.load(), spare.load()
        read.store(written)
        write.store(spared)
        spare.store(written)

    def _stack(self) -> None:
        open_stack(self.frame, self.row[2], self.address(3))

    def _push(self) -> None:
        self.check(push(self.f, self.frame, self.address(3), self.address(5), self.row[2]))

    def _pop(self) -> None:
        register = self.bases.at(self.row[5])
        self.check(pop(self.f, self.address(3), self.row[2], register))

    def _send(self) -> None:
        self.check(send(self.f, self.frame, self.row, self.address(4)))

    def _wait(self) -> None:
        self.check(receive(self.f, self.frame, self.row, self.address(4)))
