"""How the loops of a kernel spread over the threads of a GPU.

    parallel for i0 in 0..4096:          a group of lanes for each unit, groups stride over units
        vector for i1 in 0..1024:        the lanes of the group stride over the iterations
            r0 = r0 + ...                each lane sums its own; the group adds them up afterwards
        a1[i0] = r0                      every lane knows r0, the first one stores it

Everything outside of vector loops is computed by every lane alike.  That is right only where no
lane reads what another one stores on the way; a kernel for which this cannot be seen gets groups
of one lane, which is always right.
"""

from __future__ import annotations

from graphc.base.record import record
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.held_rows import Held, held_rows
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.gpu.vectors import WIDTH, trips, vectors_of
from graphc.loops.nest import (
    Assign,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Statement,
    Store,
    Update,
    expressions,
    postorder,
    walk,
)


@record(frozen=True)
class Shape:
    """Lanes per group (a power of two), threads per block and blocks, the scratch buffers that lie
    in shared memory or in the lane's own (the others are `work` operands, a part per group), and
    what lanes keep of a row."""

    lanes: int
    threads: int
    blocks: int
    near: frozenset[int]
    barriers: bool
    warp: int
    held: Held | None = None

    @property
    def groups(self) -> int:
        return self.blocks * (self.threads // self.lanes)


def shape_of(kernel: Kernel, chip: Chip) -> Shape:
    """How a kernel is launched on a chip."""
    lanes = lanes_of(kernel, chip)
    held = held_rows(kernel, lanes)
    own = held.own if held is not None else frozenset()
    scratch = [b for b in kernel.buffers if b.mode == "work" and b.index not in own]
    folds = any(isinstance(s, Update) for s in walk(kernel.body))
    barriers = lanes > 1 and (bool(rewritten(kernel) - own) or (folds and lanes > chip.warp))
    threads = lanes if barriers or kernel.units <= 1 else chip.threads
    if lanes == 1:
        threads = min(chip.threads, power_of_two(kernel.units))
    most = chip.blocks * chip.threads // threads
    blocks = max(1, min(most, -(-kernel.units // (threads // lanes))))
    near = near_buffers(scratch, lanes, chip) | own
    return Shape(lanes, threads, blocks, near, barriers, chip.warp, held)


def rewritten(kernel: Kernel) -> set[int]:
    """The buffers that a kernel both writes and reads."""
    stored = {s.buffer.index for s in walk(kernel.body) if isinstance(s, Store)}
    return stored & loaded(kernel.body)


def near_buffers(scratch: list[Buffer], lanes: int, chip: Chip) -> frozenset[int]:
    """The scratch buffers that need no memory of the arena."""
    room = chip.shared // 2
    near = set()
    for buffer in scratch:
        nbytes = buffer.size * buffer.dtype.itemsize
        if lanes == 1:
            if buffer.size <= tuned.local_elements:
                near.add(buffer.index)
        elif nbytes <= room:
            near.add(buffer.index)
            room -= nbytes
    return frozenset(near)


def power_of_two(count: int) -> int:
    """The smallest power of two that is not below the count."""
    return 1 << max(0, count - 1).bit_length()


def lanes_of(kernel: Kernel, chip: Chip) -> int:
    """Lanes that share a unit: as many as the longest vector loop can use.

    Where they take four iterations at a time a quarter of them does as much; and a row that a warp
    can fold in a few turns needs no barriers.
    """
    loops = outermost_vectors(kernel.body)
    longest = max((trips(loop) for loop in loops), default=1)
    if longest < tuned.lane_iterations or not may_share(kernel):
        return 1
    work = frozenset(b.index for b in kernel.buffers if b.mode == "work")
    longest_loops = [loop for loop in loops if trips(loop) == longest]
    if longest > WIDTH and all(vectors_of(loop, kernel, work) for loop in longest_loops):
        lanes = power_of_two(-(-longest // WIDTH))
        folds = any(shared_sums(loop) for loop in loops)
        most = chip.warp if folds and lanes <= chip.warp * tuned.written_turns else chip.threads
        return min(lanes, most)
    return min(power_of_two(longest), chip.threads)


def outermost_vectors(body: list[Statement]) -> list[For]:
    """The loops whose iterations the lanes share."""
    found: list[For] = []
    for statement in body:
        if isinstance(statement, For) and statement.kind == "vector":
            found.append(statement)
        elif isinstance(statement, For | If):
            found += outermost_vectors(statement.body)
    return found


def may_share(kernel: Kernel) -> bool:
    """Is a kernel right when lanes share a unit?"""
    vectors = outermost_vectors(kernel.body)
    if kernel.strict and any(map(adds_up, vectors)):
        return False
    inside = [s for loop in vectors for s in walk(loop.body)]
    within = set(map(id, inside))
    outside = [s for s in walk(kernel.body) if id(s) not in within]
    written = {s.buffer.index for s in outside if isinstance(s, Store)}
    if written & loaded(kernel.body):
        return False  # one lane stores what the others read, or all add to it
    return not any(sets_outer_register(loop) for loop in vectors)


def adds_up(loop: For) -> bool:
    """Do the lanes of a loop sum floats, whose order matters?"""
    floats = {
        s.register.index
        for s in walk(loop.body)
        if isinstance(s, Update) and s.register.dtype.kind == "f" and s.combine in ("add", "mul")
    }
    return not floats.isdisjoint(shared_sums(loop))


def loaded(body: list[Statement]) -> set[int]:
    """The buffers that statements read."""
    roots = [e for s in walk(body) for e in expressions(s)]
    return {e.data[0] for e in postorder(roots) if e.op == "load"}


def sets_outer_register(loop: For) -> bool:
    """Does a vector loop set a register of its surroundings, or read one that it updates?"""
    declared, updated, assigned = set(), set(), set()
    read: set[int] = set()
    for statement in walk(loop.body):
        match statement:
            case Declare(register=register):
                declared.add(register.index)
            case Update(register=register):
                updated.add(register.index)
            case Assign(register=register):
                assigned.add(register.index)
        read |= registers_in(expressions(statement))
    outer = (updated & read) | assigned
    return bool(outer - declared)


def registers_in(roots: tuple[Expr, ...]) -> set[int]:
    return {e.data[0] for e in postorder(roots) if e.op == "reg"}


def shared_sums(loop: For, shared: bool = False) -> dict[int, str]:
    """Registers that lanes update inside a loop outside of which they were declared, with how.

    Only those that nothing else in the loop reads, sets or updates: they are combined once, after
    the loop.  `shared` counts what is updated outside of vector loops as well.
    """
    found: dict[int, str] = {}
    barred: set[int] = set()

    def visit(body: list[Statement], shared: bool) -> None:
        for statement in body:
            barred.update(registers_in(expressions(statement)))
            match statement:
                case Declare(register=register) | Assign(register=register):
                    barred.add(register.index)
                case Update(register=register, combine=combine):
                    if shared and found.get(register.index, combine) == combine:
                        found[register.index] = combine
                    else:
                        barred.add(register.index)
                case For():
                    visit(statement.body, shared or statement.kind == "vector")
                case If():
                    visit(statement.body, shared)

    visit([loop] if loop.kind == "vector" else loop.body, shared)
    return {index: combine for index, combine in found.items() if index not in barred}


def stores_to(loop: For, buffers: set[int]) -> bool:
    """Does a loop write one of the buffers?"""
    return any(isinstance(s, Store) and s.buffer.index in buffers for s in walk(loop.body))
