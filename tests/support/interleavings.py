"""Runs native code in Python, with threads that are interleaved in every possible way.

What is read is the text that LLVM gets (see `graphc.codegen.llvm.writer`).  Memory is a dictionary
of words.  Every access to memory that threads share is a point where another thread may go on;
`explore` visits every state that some order leads to, once, and tells of

    a state from which not all threads can end: a lost wake-up, a deadlock or a livelock
    two accesses to one place at the same time, of which one is a plain one and one writes
    whatever a test's own functions assert

With `buffered` stores that are not sequentially consistent wait in the order of the program until
the thread's next atomic change or any later moment, as those of x86 processors do.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

WORD = (1 << 64) - 1
STACKS, FUNCTIONS, GLOBALS = 1 << 40, 1 << 44, 1 << 20
STACK_BYTES = 1 << 16
WOKEN = -1  # instead of the condition that a thread waits for
_BITS = {"i1": 1, "i8": 8, "i32": 32, "i64": 64, "ptr": 64}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "udiv": operator.floordiv,
    "urem": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "lshr": operator.rshift,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "ult": operator.lt,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
_TOKEN = re.compile(r"<.*?>|[%@][\w.]+|-?\d+|[a-z_]\w*|[\[\]{}()=,]")


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# ------------------------------------------------------------------------------------ programs


class Instruction(NamedTuple):
    """`operands` are registers or numbers; `more` is what else the operation needs."""

    name: str
    target: str
    operands: tuple[str | int, ...]
    more: Any = None


class Function:
    """The blocks of a function, and which registers are read after each place in them.

    Stack slots of one value that are only loaded and stored are registers, too.
    """

    def __init__(self, name: str, parameters: Sequence[str], lines: Sequence[str]) -> None:
        self.name, self.parameters = name, tuple(parameters)
        self.blocks: dict[str, list[Instruction]] = {}
        for line in lines:
            if line.endswith(":"):
                block = self.blocks.setdefault(line[:-1], [])
            elif not block or block[-1].name not in _ENDS:
                block.append(parsed(line))
        self._use_registers()
        self.live = self._live()

    def _use_registers(self) -> None:
        everything = [i for block in self.blocks.values() for i in block]
        slots = {i.target for i in everything if i.name == "alloca" and i.more == 8}
        for i in everything:
            place = {"load": 0, "store": 1}.get(i.name) if i.more == "" else None
            slots -= {str(o) for k, o in enumerate(i.operands) if k != place}
        for label, block in self.blocks.items():
            self.blocks[label] = [moved(i, slots) for i in block if i.target not in slots]

    def _live(self) -> dict[tuple[str, int], frozenset[str]]:
        """Before every instruction, the registers that are read later."""
        entry: dict[str, frozenset[str]] = dict.fromkeys(self.blocks, frozenset())
        found: dict[tuple[str, int], frozenset[str]] = {}
        changed = True
        while changed:
            changed = False
            for label, block in reversed(self.blocks.items()):
                after: set[str] = set()
                for following in following_blocks(block[-1]):
                    after |= entry[following]
                for place in range(len(block) - 1, -1, -1):
                    i = block[place]
                    after.discard(i.target)
                    after |= {o for o in i.operands if isinstance(o, str) and o[0] == "%"}
                    found[label, place] = frozenset(after)
                if frozenset(after) != entry[label]:
                    entry[label], changed = frozenset(after), True
        return found


_ENDS = ("br", "switch", "ret", "unreachable")


def moved(i: Instruction, slots: set[str]) -> Instruction:
    """An instruction, where loads and stores of these slots are moves between registers."""
    if i.name == "load" and i.operands[0] in slots:
        return Instruction("move", i.target, i.operands)
    if i.name == "store" and i.operands[1] in slots:
        return Instruction("move", str(i.operands[1]), i.operands[:1])
    return i


def following_blocks(last: Instruction) -> Sequence[str]:
    if last.name == "br":
        return tuple(last.more)
    return tuple(last.more.values()) if last.name == "switch" else ()


def operand(text: str) -> str | int:
    if text[0] in "%@":
        return text
    return 0 if text == "null" else int(text) & WORD


def parsed(line: str) -> Instruction:
    """One instruction."""
    words = _TOKEN.findall(line)
    target = ""
    if len(words) > 1 and words[1] == "=":
        target, words = words[0], words[2:]
    name = words[0]
    if name in _BINARY:
        return Instruction(name, target, (operand(words[2]), operand(words[4])), _BITS[words[1]])
    return Instruction(name, target, *_PARTS[name](words))


def _call(words: list[str]) -> tuple[Any, Any]:
    inner = words[words.index("(") + 1 : -1]
    values = tuple(operand(w) for k, w in enumerate(inner) if k % 3 == 1)
    return (operand(words[2]), *values), None


def _getelementptr(words: list[str]) -> tuple[Any, Any]:
    size = int(words[2]) if words[1] == "[" else _BITS[words[1]] // 8
    return (operand(words[-4]), operand(words[-1])), size


def _alloca(words: list[str]) -> tuple[Any, Any]:
    if words[1] == "[":
        return (), int(words[2]) * _BITS[words[4]] // 8
    return ((operand(words[4]),), 0) if words[3] == "i64" else ((), 8)


def _memory(words: list[str]) -> tuple[Any, str]:
    """The operands of a load or store, and its order: "" for a plain one."""
    order = words[-4] if words[1] == "atomic" else ""
    given = words[2:-4] if order else words[1:]
    if words[0] == "load":
        return (operand(given[3]),), order
    return (operand(given[1]), operand(given[4])), order


def _switch(words: list[str]) -> tuple[Any, Any]:
    cases = {int(words[k]): words[k + 3][1:] for k in range(8, len(words) - 1, 5)}
    return (operand(words[2]),), {None: words[5][1:], **cases}


def _phi(words: list[str]) -> tuple[Any, Any]:
    ends = [k for k, word in enumerate(words) if word == "]"]
    return tuple(operand(words[k - 3]) for k in ends), [words[k - 1][1:] for k in ends]


_PARTS: dict[str, Callable[[list[str]], tuple[Any, Any]]] = {
    "icmp": lambda w: ((operand(w[3]), operand(w[5])), (w[1], _BITS[w[2]])),
    "select": lambda w: ((operand(w[2]), operand(w[5]), operand(w[8])), None),
    "getelementptr": _getelementptr,
    "load": _memory,
    "store": _memory,
    "cmpxchg": lambda w: ((operand(w[2]), operand(w[5]), operand(w[8])), _BITS[w[4]]),
    "extractvalue": lambda w: ((operand(w[6]),), None),
    "atomicrmw": lambda w: ((operand(w[3]), operand(w[6])), (w[1], _BITS[w[5]])),
    "alloca": _alloca,
    "call": _call,
    "phi": _phi,
    **dict.fromkeys(
        ("zext", "sext", "trunc", "ptrtoint", "inttoptr"),
        lambda w: ((operand(w[2]),), (_BITS[w[1]], _BITS[w[4]])),
    ),
    "br": lambda w: (
        ((), [w[2][1:]]) if w[1] == "label" else ((operand(w[2]),), [w[5][1:], w[8][1:]])
    ),
    "switch": _switch,
    "ret": lambda w: ((operand(w[2]),) if len(w) > 2 else (), None),
    "unreachable": lambda w: ((), None),
}


class Program:
    """The functions of a text, and where its globals lie."""

    def __init__(self, text: str) -> None:
        self.functions: dict[str, Function] = {}
        self.addresses: dict[str, int] = {}
        self.first: dict[int, int] = {}  # memory that is not zero at the start
        memory = r"^(@\w+) = internal global (\[|\w+ )(\d+)"
        for name, kind, value in re.findall(memory, text, re.MULTILINE):
            address = self.addresses[name] = GLOBALS + (len(self.addresses) << 20)
            if kind != "[" and int(value):
                self.first[address] = int(value)
        for head, body in re.findall(r"^define ([^{]*) \{\n(.*?)^\}", text, re.M | re.S):
            found = re.match(r"[^@]*(@\w+)\((.*)\)", head)
            assert found is not None, head
            name, parameters = found.groups()
            self.functions[name] = Function(
                name, re.findall(r"%\w+", parameters), [x.strip() for x in body.splitlines()]
            )
        for name in re.findall(r"^declare \S+ (@[\w.]+)", text, re.M):
            self.addresses[name] = FUNCTIONS + 16 * len(self.addresses)
        for name in self.functions:
            self.addresses[name] = FUNCTIONS + 16 * len(self.addresses)
        self.names = {address: name for name, address in self.addresses.items()}
        for function in self.functions.values():
            for label, block in function.blocks.items():
                function.blocks[label] = [self._placed(i) for i in block]

    def _placed(self, i: Instruction) -> Instruction:
        """An instruction with the addresses of globals and functions."""
        places = tuple(self.addresses.get(o, o) if isinstance(o, str) else o for o in i.operands)
        return i._replace(operands=places)


# ------------------------------------------------------------------------------------ threads


class Frame(NamedTuple):
    """A call that is not over: the next instruction, its part of the stack, live registers."""

    function: str
    block: str
    place: int
    base: int
    top: int
    registers: tuple[tuple[str, int], ...]


class Thread(NamedTuple):
    """`asleep` is the condition that it waits for; `waiting` are stores that others do not see."""

    frames: tuple[Frame, ...]
    asleep: int = 0
    waiting: tuple[tuple[int, int], ...] = ()


class State(NamedTuple):
    threads: tuple[Thread, ...]
    memory: frozenset[tuple[int, int]]


class Access(NamedTuple):
    """What a thread does to shared memory next."""

    addresses: tuple[int, ...]
    writes: bool
    is_plain: bool


class Running:
    """A thread of a state while it runs: `memory` is changed by it."""

    def __init__(self, machine: Machine, number: int, thread: Thread, memory: dict[int, int]):
        self.machine, self.number, self.memory = machine, number, memory
        self.frames = list(thread.frames)
        self.waiting = list(thread.waiting)
        self.asleep = thread.asleep
        self._open()

    def _open(self) -> None:
        if self.frames:
            name, self.block, self.place, self.base, self.top, registers = self.frames[-1]
            self.function = self.machine.program.functions[name]
            self.registers = dict(registers)

    def frozen(self) -> Thread:
        """The thread as part of a state."""
        if self.frames:
            self._save(self.function.live[self.block, self.place])
        return Thread(tuple(self.frames), self.asleep, tuple(self.waiting))

    def _save(self, live: frozenset[str]) -> None:
        registers = tuple(sorted((n, v) for n, v in self.registers.items() if n in live))
        self.frames[-1] = Frame(
            self.function.name, self.block, self.place, self.base, self.top, registers
        )

    # -- values and memory

    @property
    def next(self) -> Instruction:
        return self.function.blocks[self.block][self.place]

    def value(self, operand: str | int) -> int:
        return operand if isinstance(operand, int) else self.registers[operand]

    def values(self) -> list[int]:
        return [self.value(o) for o in self.next.operands]

    def read(self, address: int) -> int:
        for place, value in reversed(self.waiting):
            if place == address:
                return value
        return self.memory.get(address, 0)

    def write(self, address: int, value: int) -> None:
        """Change memory; zeros are left out, so that equal states are equal."""
        assert address % 4 == 0 and address >= GLOBALS, f"a store to address {address:#x}"
        assert address not in self.machine.constants, f"{address:#x} must not change"
        if value:
            self.memory[address] = value
        else:
            self.memory.pop(address, None)

    def is_private(self, address: int) -> bool:
        return address >> 16 == (STACKS >> 16) + self.number or address in self.machine.constants

    # -- control

    def give(self, value: int) -> None:
        """The result of the present instruction; go on behind it."""
        if self.next.target:
            self.registers[self.next.target] = value
        self.place += 1

    def jump(self, label: str) -> None:
        before, self.block, self.place = self.block, label, 0
        found = {}
        for i in self.function.blocks[label]:
            if i.name != "phi":
                break
            found[i.target] = self.value(i.operands[i.more.index(before)])
            self.place += 1
        self.registers.update(found)

    def enter(self, function: Function, arguments: Sequence[int]) -> None:
        if self.frames:
            live = self.function.live[self.block, self.place + 1] - {self.next.target}
            self._save(live)
        base = self.top if self.frames else STACKS + self.number * STACK_BYTES
        registers = tuple(zip(function.parameters, arguments, strict=True))
        self.frames.append(
            Frame(function.name, next(iter(function.blocks)), 0, base, base, registers)
        )
        self._open()

    def leave(self, value: int) -> None:
        for address in range(self.base, self.top, 4):
            self.memory.pop(address, None)
        self.frames.pop()
        self._open()
        if self.frames:
            self.give(value)

    # -- running

    def settle(self) -> None:
        """Run up to the next access to shared memory, or to the end."""
        for _ in range(10_000):
            if not self.frames:
                return
            i = self.next
            if (i.name in _MAY_BE_SHARED and self.is_shared(i)) or self.asleep:
                return
            self.step()
        raise AssertionError(f"{self.function.name} runs for ever alone")

    def access(self) -> Access | None:
        """What the next instruction does to memory."""
        i, values = self.next, self.values()
        if i.name == "load":
            return Access((values[0],), False, not i.more)
        if i.name == "store":
            return Access((values[1],), True, not i.more)
        if i.name in ("cmpxchg", "atomicrmw"):
            return Access((values[0],), True, False)
        return None

    def is_shared(self, i: Instruction) -> bool:
        """Whether another thread may go on before this instruction."""
        if i.name == "call":
            return self.callee() in self.machine.visible
        if not i.more and not self.machine.races:
            return False
        return not self.is_private(self.value(i.operands[i.name == "store"]))

    def callee(self) -> str:
        address = self.value(self.next.operands[0])
        return self.machine.program.names.get(address) or f"kernel {address}"

    def step(self) -> None:
        """Do one instruction."""
        i = self.next
        known = self.registers
        values = [o if o.__class__ is int else known[o] for o in i.operands]  # type: ignore[index]
        _DO[i.name](self, i, values)

    def call(self, i: Instruction, values: list[int]) -> None:
        name = self.callee()
        model = self.machine.models.get(name)
        if model is None:
            self.enter(self.machine.program.functions[name], values[1:])
        else:
            result = model(self, *values[1:])
            if not self.asleep:
                self.give(result or 0)

    def store(self, i: Instruction, values: list[int]) -> None:
        value, address = values
        if self.machine.buffered and i.more != "seq_cst" and not self.is_private(address):
            self.waiting.append((address, value))
        else:
            self.write(address, value)
        self.give(0)

    def swap(self, i: Instruction, values: list[int]) -> None:
        address, old, new = values
        mask = (1 << i.more) - 1
        won = self.read(address) == old & mask
        if won:
            self.write(address, new & mask)
        self.give(int(won))

    def change(self, i: Instruction, values: list[int]) -> None:
        name, bits = i.more
        before = self.read(values[0])
        new = values[1] if name == "xchg" else _BINARY[name](before, values[1])
        self.write(values[0], new & ((1 << bits) - 1))
        self.give(before)

    def reserve(self, i: Instruction, values: list[int]) -> None:
        address = self.top
        self.top += -(-(i.more or 8 * values[0]) // 16) * 16
        self.give(address)


def _binary(run: Running, i: Instruction, values: list[int]) -> None:
    mask = (1 << i.more) - 1
    run.give(_BINARY[i.name](values[0] & mask, values[1] & mask) & mask)


def _icmp(run: Running, i: Instruction, values: list[int]) -> None:
    relation, bits = i.more
    a, b = (v & ((1 << bits) - 1) for v in values)
    if relation[0] == "s":
        a, b = signed(a, bits), signed(b, bits)
    run.give(int(_COMPARE[relation](a, b)))


def _cast(run: Running, i: Instruction, values: list[int]) -> None:
    source, target = i.more
    value = values[0] & ((1 << source) - 1)
    if i.name == "sext":
        value = signed(value, source)
    run.give(value & ((1 << target) - 1))


def _branch(run: Running, i: Instruction, values: list[int]) -> None:
    run.jump(i.more[0] if not values or values[0] & 1 else i.more[1])


def _gep(run: Running, i: Instruction, values: list[int]) -> None:
    run.give((values[0] + i.more * signed(values[1], 64)) & WORD)


_DO: dict[str, Callable[[Running, Instruction, list[int]], None]] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(("zext", "sext", "trunc", "ptrtoint", "inttoptr"), _cast),
    "icmp": _icmp,
    "select": lambda run, i, v: run.give(v[1] if v[0] & 1 else v[2]),
    "getelementptr": _gep,
    "load": lambda run, i, v: run.give(run.read(v[0])),
    "store": Running.store,
    "cmpxchg": Running.swap,
    "atomicrmw": Running.change,
    "extractvalue": lambda run, i, v: run.give(v[0]),
    "move": lambda run, i, v: run.give(v[0]),
    "alloca": Running.reserve,
    "call": Running.call,
    "br": _branch,
    "switch": lambda run, i, v: run.jump(i.more.get(v[0], i.more[None])),
    "ret": lambda run, i, v: run.leave(v[0] if v else 0),
}


# ------------------------------------------------------------------------------------ the system


def _unlock(run: Running, mutex: int) -> None:
    assert run.read(mutex) == run.number + 1, "a mutex is released by whoever does not hold it"
    run.write(mutex, 0)


def _sleep(run: Running, condition: int, mutex: int) -> None:
    """Sleep until somebody signals, which leads here again, then take the mutex."""
    if run.asleep == WOKEN:
        run.write(mutex, run.number + 1)
        run.asleep = 0
    else:
        _unlock(run, mutex)
        run.asleep = condition


def _copy(run: Running, target: int, source: int, count: int, _: int) -> None:
    for k in range(0, count, 8):
        run.write(target + k, run.read(source + k))


def _clear(run: Running, target: int, value: int, count: int, _: int) -> None:
    for address in [a for a in run.memory if target <= a < target + count]:
        run.write(address, 0)


def _nothing(run: Running, *_: int) -> int:
    return 0


_SHARED: dict[str, Callable[..., Any]] = {
    "@pthread_mutex_lock": lambda run, mutex: run.write(mutex, run.number + 1),
    "@pthread_mutex_unlock": _unlock,
    "@pthread_cond_wait": _sleep,
    "@pthread_cond_signal": _nothing,  # see `Machine._woken`
    "@llvm.memcpy.p0.p0.i64": _copy,
    "@llvm.memset.p0.i64": _clear,
    "@graphc_stream": lambda run, target, source, lines: _copy(run, target, source, 64 * lines, 0),
}
_OWN: dict[str, Callable[..., Any]] = {
    "@sched_yield": _nothing,
    "@graphc_pause": _nothing,
    "@graphc_now": _nothing,
    "@sched_getcpu": _nothing,
    "@pthread_getaffinity_np": lambda run, *_: 1,
    "@llvm.cttz.i64": lambda run, value, _: (value & -value).bit_length() - 1,
}
_MAY_BE_SHARED = frozenset(("load", "store", "cmpxchg", "atomicrmw", "call"))
_DRAINS = ("cmpxchg", "atomicrmw", "call")


class Machine:
    """A program and what it runs on.

    `models` stand for functions: they get the thread and the arguments and give the result;
    `visible` names those that are seen by other threads.  `choices` are the results that a function
    may give at any time.  `constants` are addresses of memory that nobody writes.  With `races`
    another thread may go on before plain accesses, too, and none may meet another.
    """

    def __init__(
        self,
        program: Program,
        models: Mapping[str, Callable[..., Any]] | None = None,
        choices: Mapping[str, Sequence[int]] | None = None,
        constants: Sequence[int] = (),
        buffered: bool = False,
        races: bool = False,
    ) -> None:
        self.program, self.buffered, self.races = program, buffered, races
        self.choices = dict(choices or {})
        self.models: dict[str, Callable[..., Any]] = {**_OWN, **_SHARED, **(models or {})}
        self.visible = {*_SHARED, *(models or {}), *self.choices}
        self.constants = frozenset(constants)

    def start(self, memory: Mapping[int, int], calls: Sequence[tuple[str, Sequence[int]]]) -> State:
        """A thread for each call."""
        words = {a: v for a, v in {**self.program.first, **memory}.items() if v}
        threads = []
        for number, (name, arguments) in enumerate(calls):
            run = Running(self, number, Thread(()), words)
            run.enter(self.program.functions[f"@graphc_{name}"], arguments)
            run.settle()
            threads.append(run.frozen())
        return State(tuple(threads), frozenset(words.items()))

    def successors(self, state: State) -> Iterator[State]:
        """The states after one step of any thread."""
        accesses = []
        for number, thread in enumerate(state.threads):
            if thread.waiting:
                yield self._flushed(state, number)
            if thread.frames and thread.asleep in (0, WOKEN):
                run = Running(self, number, thread, dict(state.memory))
                if self.races:
                    accesses.append(run.access())
                if not self._is_blocked(run):
                    yield from self._steps(state, run)
        check_races([access for access in accesses if access is not None])

    def _flushed(self, state: State, number: int) -> State:
        """A store of a thread reaches memory."""
        thread = state.threads[number]
        run = Running(self, number, thread, dict(state.memory))
        run.write(*run.waiting.pop(0))
        return State(replaced(state.threads, number, run.frozen()), frozenset(run.memory.items()))

    def _is_blocked(self, run: Running) -> bool:
        i = run.next
        if run.waiting and (i.name in _DRAINS or (i.name == "store" and i.more == "seq_cst")):
            return True
        name = run.callee() if i.name == "call" else ""
        place = {"@pthread_mutex_lock": 1, "@pthread_cond_wait": 2}.get(name)
        wants = place is not None and (place == 1 or run.asleep == WOKEN)
        return wants and run.read(run.values()[place or 0]) != 0

    def _steps(self, state: State, run: Running) -> Iterator[State]:
        name = run.callee() if run.next.name == "call" else ""
        for choice in self.choices.get(name, ()):
            other = Running(self, run.number, state.threads[run.number], dict(state.memory))
            other.give(choice)
            yield self._settled(state, other)
        if name not in self.choices:
            condition = run.values()[1] if name == "@pthread_cond_signal" else 0
            run.step()
            yield self._settled(state, run, condition)

    def _settled(self, state: State, run: Running, condition: int = 0) -> State:
        run.settle()
        threads = replaced(state.threads, run.number, run.frozen())
        return State(self._woken(threads, condition), frozenset(run.memory.items()))

    def _woken(self, threads: tuple[Thread, ...], condition: int) -> tuple[Thread, ...]:
        """The first thread that sleeps on a condition goes on."""
        for number, thread in enumerate(threads):
            if condition and thread.asleep == condition:
                return replaced(threads, number, thread._replace(asleep=WOKEN))
        return threads


def replaced(threads: tuple[Thread, ...], number: int, thread: Thread) -> tuple[Thread, ...]:
    return (*threads[:number], thread, *threads[number + 1 :])


def check_races(accesses: Sequence[Access]) -> None:
    """No two threads may touch one place next, if one of them writes and one is a plain access."""
    for k, first in enumerate(accesses):
        for second in accesses[:k]:
            if (first.writes or second.writes) and (first.is_plain or second.is_plain):
                shared = set(first.addresses) & set(second.addresses)
                assert not shared, f"a race for {min(shared):#x}"


def explore(
    machine: Machine,
    start: State,
    *,
    ends: Sequence[int] | None = None,
    check: Callable[[dict[int, int]], None] | None = None,
    most: int = 100_000,
) -> int:
    """Visit every state; how many there are.

    From each of them the threads `ends` (all unless given) must be able to end; `check` looks at
    memory when they have.
    """
    seen = {start: 0}
    states, before = [start], list[list[int]]([[]])
    finished: list[int] = []
    for number, state in enumerate(states):  # which grows
        watched = state.threads if ends is None else [state.threads[t] for t in ends]
        if not any(thread.frames or thread.waiting for thread in watched):
            finished.append(number)
            if check is not None:
                check(dict(state.memory))
        for following in machine.successors(state):
            found = seen.setdefault(following, len(states))
            if found == len(states):
                assert found < most, f"more than {most} states"
                states.append(following)
                before.append([])
            before[found].append(number)
    can_end, stack = set(finished), list(finished)
    while stack:
        for number in before[stack.pop()]:
            if number not in can_end:
                can_end.add(number)
                stack.append(number)
    lost = [state for number, state in enumerate(states) if number not in can_end]
    assert not lost, f"some threads never end: {places(lost[-1])}"
    return len(states)


def places(state: State) -> str:
    """Where the threads are."""
    return "; ".join(
        ("asleep in " if thread.asleep else "")
        + " < ".join(f.function for f in thread.frames[::-1])
        for thread in state.threads
    )
