"""The step table of a program as straight native code, with an entry that C calls.

    int32_t NAME_call(const void *const *params, void *const *results, void *state, void *workspace)

runs the program once.  Rows become instructions in their order: what a row calls, and how much of
it, is known here, so nothing walks a table when it runs.  Registers that rows change are slots on
the stack; all others are addresses that the entry finds at its start.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.base.record import record
from graphc.codegen.llvm.writer import (
    I8,
    I32,
    I64,
    PTR,
    VECTOR,
    Global,
    Module,
    Value,
    Writer,
    copy_bytes,
)
from graphc.runtime.load import table
from graphc.runtime.load.program import ALIGNMENT, Image

MISALIGNED = -100  # the status of a call whose workspace or state begins at no multiple of 64
KERNEL = (PTR, PTR, I64, I64, I64)  # operands, words, first unit, end of the units, thread
_STACK = "a loop whose length only the data knows remembers each step for its gradient"
RUNTIME_ONLY = {  # rows that need what only a process with the runtime has
    table.STACK: _STACK,
    table.PUSH: _STACK,
    table.POP: _STACK,
    table.SEND: "it sends values to another device",
    table.WAIT: "it waits for values of another device",
}


@record(frozen=True)
class State:
    """Where the variables of a program lie in the memory that its caller keeps for them."""

    offsets: tuple[int, ...]
    nbytes: int


def state_of(image: Image) -> State:
    """Each variable begins at a multiple of 64 bytes, in their order."""
    offsets, end = [], 0
    for variable in image.variables:
        offsets.append(end)
        end += variable.slot.nbytes + -variable.slot.nbytes % ALIGNMENT
    return State(tuple(offsets), end)


def entries_of(image: Image, name: str) -> tuple[str, ...]:
    """The symbols that others call."""
    return f"{name}_call", *([f"{name}_begin"] if state_of(image).nbytes else [])


def entry_text(image: Image, name: str, triple: str) -> str:
    """LLVM IR of `NAME_call`, and of `NAME_begin` where there are variables.

    It uses `NAME_constants`, `NAME_first` (the first values of the variables) and the kernels,
    which other texts define.  No row of the table is one of `RUNTIME_ONLY`.
    """
    module = Module(triple)
    written = [_call(module, image, name)]
    state = state_of(image)
    if state.nbytes:
        written.append(_begin(module, name, state))
    kernels = [f"declare i32 @{symbol}({', '.join(KERNEL)})" for symbol in image.kernels]
    words = ", ".join(f"i64 {word}" for word in image.words.tolist())
    data = [
        f"@{name}_words = internal constant [{image.words.size} x i64] [{words}], align 8",
        f"@{name}_constants = external constant [{image.constants.nbytes} x i8]",
        f"@{name}_first = external constant [{state.nbytes} x i8]",
    ]
    return "\n".join([*data, *kernels, *module.heads.values(), *written])


def _define(name: str, kinds: Iterable[str], f: Writer) -> str:
    given = ", ".join(f"ptr %{kind}" for kind in kinds)
    head = f"define {f.result} @{name}({given}) {{"
    return "\n".join([head, "entry:", *f.slots, *f.lines, "}", ""])


def _begin(module: Module, name: str, state: State) -> str:
    """Give all variables their first values."""
    f = Writer(module, "void")
    copy_bytes(f, Value(f, PTR, "%state"), Value(f, PTR, f"@{name}_first"), state.nbytes)
    f.give()
    return _define(f"{name}_begin", ["state"], f)


def _call(module: Module, image: Image, name: str) -> str:
    f = Writer(module, I32)
    Rows(f, image, name).run()
    return _define(f"{name}_call", ["params", "results", "state", "workspace"], f)


_flag = Global("never_cancelled", I64)


class Rows:
    """Writes the rows of a table: a method for each kind, as in the walker."""

    def __init__(self, f: Writer, image: Image, name: str) -> None:
        self.f, self.image, self.name = f, image, name
        self.words = image.table.tolist()
        self.operands = f.slot(I64, table.most_operands(self.words) + 2).at(2)
        self.bases: list[Value] = []
        self.targets: set[int] = set()

    def run(self) -> None:
        f, image = self.f, self.image
        state, workspace = Value(f, PTR, "%state"), Value(f, PTR, "%workspace")
        self._check_alignment(workspace, state)
        self.bases = [workspace, Value(f, PTR, f"@{self.name}_constants")]
        for array, slots in (("%params", image.params), ("%results", image.results)):
            self.bases += [self._pointer(array, k) for k in range(len(slots))]
        self.bases += [state + offset for offset in state_of(image).offsets]
        self.bases += [f.slot(I64) for _ in range(image.registers)]
        self.operands.at(-1).store(_flag(f))  # where kernels look for the cancel flag
        starts = [*table.rows(self.words)]
        jumps = (table.TARGET_WORD.get(self.words[row]) for row in starts)
        self.targets = {self.words[r + t] for r, t in zip(starts, jumps, strict=True) if t}
        for row in starts:
            if row in self.targets:
                f.go(f"row{row}")
                f.label(f"row{row}")
            getattr(self, f"_{table.NAMES[self.words[row]]}")(row)

    def _check_alignment(self, *places: Value) -> None:
        f = self.f
        for place in places:
            with f.when((place.cast("ptrtoint", I64) & (VECTOR - 1)) != 0):
                f.give(f.half(MISALIGNED))

    def _pointer(self, array: str, index: int) -> Value:
        """An element of an array that C made: of pointers, as long as they are there."""
        return self.f.new(PTR, f"getelementptr ptr, ptr {array}, i64 {index}").load(PTR)

    def is_register(self, base: int) -> bool:
        return base >= self.image.first_register

    def address(self, base: int, offset: int) -> Value:
        """An address from a base register and a number of bytes."""
        found = self.bases[base]
        if self.is_register(base):
            found = found.load(I64).cast("inttoptr", PTR)
        return found + offset if offset else found

    def place(self, row: int, word: int) -> Value:
        return self.address(self.words[row + word], self.words[row + word + 1])

    def number(self, base: int, offset: int) -> Value:
        """The same as a number."""
        if base == table.ABSENT:
            return Value(self.f, I64, str(offset))
        if self.is_register(base):
            return self.bases[base].load(I64) + offset
        return self.address(base, offset).cast("ptrtoint", I64)

    def branch_to(self, condition: Value, target: int) -> None:
        """Go to a row where a condition holds, else on."""
        f = self.f
        tag = f.tag()
        f.do(f"br i1 {condition.text}, label %row{target}, label %on{tag}")
        f.label(f"on{tag}")

    # -- the rows, by their names in the table

    def _end(self, row: int) -> None:
        self.f.give(0)

    def _call(self, row: int) -> None:
        f, words = self.f, self.words
        for k, operand in enumerate(table.operands_of(words, row)):
            self.operands.at(k).store(self.address(*operand))
        symbol, units = self.image.kernels[words[row + 2]], words[row + 3]
        parameters = Value(f, PTR, f"@{self.name}_words").at(words[row + 5])
        given = [self.operands, parameters, 0, units, 0]
        status = f.call(I32, f"@{symbol}", KERNEL, given)
        with f.when(status != 0):
            f.give(status)

    def _jump(self, row: int) -> None:
        self.f.go(f"row{self.words[row + 2]}")

    def _branch(self, row: int) -> None:
        self.branch_to(self.place(row, 3).load(I8) == 0, self.words[row + 2])

    def _same(self, row: int) -> None:
        self.branch_to(self.place(row, 3) != self.place(row, 5), self.words[row + 2])

    def _bump(self, row: int) -> None:
        for word in range(row + 2, row + self.words[row + 1], 2):
            register = self.bases[self.words[word]]
            register.store(register.load(I64) + self.words[word + 1])

    def _set(self, row: int) -> None:
        self.bases[self.words[row + 2]].store(self.number(*self.words[row + 3 : row + 5]))

    def _loop(self, row: int) -> None:
        register = self.bases[self.words[row + 2]]
        left = register.load(I64) - 1
        register.store(left)
        self.branch_to(left > 0, self.words[row + 3])

    def _copy(self, row: int) -> None:
        target, source = self.place(row, 3), self.place(row, 5)
        with self.f.when(target != source):
            copy_bytes(self.f, target, source, self.words[row + 2])

    def _rotate(self, row: int) -> None:
        read, write, spare = (self.bases[self.words[row + k]] for k in (2, 3, 4))
        written, spared = write.load(I64), spare.load(I64)
        read.store(written)
        write.store(spared)
        spare.store(written)
