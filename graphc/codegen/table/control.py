"""Rows of control flow: branches, loops whose base registers move or change places, stacks.

    cond    branch pred, else          while  top:  test ...              scan       set n = L
            then ...                                branch verdict, exit       top:  body ...
            jump end                                body ...                         rotate, bump
      else: else ...                                rotate                           loop n, top
      end:                                          jump top
                                              exit:

On a GPU the carries of a while loop are copied home instead of changing places: each run of the
body is the one before again, and the device can go on by itself.

A region's values lie in the node's scratch memory, its parameters where the operands lie, and its
results where the node's result lies; what happens to carries is decided in `carries`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.codegen.table.carries import Carry, Layout, layout_of, region_of
from graphc.codegen.table.messages import recv_rows, send_rows
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Node
from graphc.ir.place import Buffer
from graphc.ir.regions import choosers, operands_of, scheduled_graphs
from graphc.ir.sizes import Size, greatest, hint_of
from graphc.ir.traits import Traits
from graphc.ir.types import StackType, Type, leaves
from graphc.runtime.load.table import ABSENT, Operand

if TYPE_CHECKING:
    from graphc.codegen.table.steps import Scope, TableWriter


def scratch_place(writer: TableWriter, node: Node) -> Operand:
    """Where the memory that a node uses while it runs begins."""
    scratch = node.place.scratch if isinstance(node.place, Buffer) else None
    return writer.scope["arena"] if scratch is None else writer.base(scratch)


def shifted(place: Operand, nbytes: int) -> Operand:
    return place[0], place[1] + nbytes


# ----------------------------------------------------------------------------------------- branches


def branch_rows(writer: TableWriter, node: Node) -> None:
    """One of the regions, which writes the node's own memory: the first whose flag holds, or the
    last, which has none."""
    table, flags = writer.table, node.inputs[: choosers(node)]
    scope = {"arena": scratch_place(writer, node)}
    scope |= {f"p{k}": writer.place(operand) for k, operand in enumerate(operands_of(node))}
    scope |= {f"r{k}": writer.place(node, k) for k in range(len(leaves(node.type)))}
    ends = []
    for flag, region in zip(flags, node.regions):
        skip = table.branch(writer.place(flag))
        with writer.inside(scope):
            writer.graph_rows(region)
        ends.append(table.jump())
        table.patch(skip, table.position)
    with writer.inside(scope):
        writer.graph_rows(node.regions[len(flags)])
    for end in ends:
        table.patch(end, table.position)


# ------------------------------------------------------------------------------------------- loops


class Loop:
    """The rows of a loop around those of its body."""

    def __init__(self, writer: TableWriter, node: Node) -> None:
        self.writer = writer
        self.table = writer.table
        self.node = node
        self.layout: Layout = layout_of(node, node.regions)
        self.scratch = scratch_place(writer, node)
        self.carries = self.layout.carries
        self.scope: Scope = {"arena": shifted(self.scratch, self.layout.inside)}
        self.reads: dict[int, int] = {}  # carry -> register that points to what the body reads
        self.others: dict[int, tuple[int, int]] = {}  # swapped carry -> what it writes, the third
        self.settled: dict[int, Operand] = {}  # swapped carry that is copied home -> what it writes
        self.travel: dict[int, int] = {}  # register -> bytes per run of the body

    def home(self, carry: int) -> Operand:
        """Where the final value of a carry belongs."""
        return self.writer.place(self.node, carry)

    def nbytes(self, carry: int) -> int:
        return leaves(self.node.type)[carry].nbytes

    def pointer(self, place: Operand) -> int:
        """A register that points to an operand."""
        register = self.writer.register()
        self.table.set(register, place)
        return register

    @property
    def settles(self) -> bool:
        """Whether carries are copied home, so that each run of the body finds them there."""
        swapped = (k for k, kind in enumerate(self.carries) if kind is Carry.SWAPPED)
        return (
            self.writer.config.backend == "cuda"
            and self.node.op.traits.tested
            and not any(isinstance(leaf, StackType) for leaf in leaves(self.node.type))
            and sum(hint_of(self.nbytes(k)) for k in swapped) <= tuned.copied_swap
        )

    def enter(self, odd: bool) -> None:
        """Point the carries at their initial values; `odd` has the first run write their homes."""
        settles = self.settles
        for k, kind in enumerate(self.carries):
            start, home = self.writer.place(self.node.inputs[k]), self.home(k)
            small = settles or hint_of(self.nbytes(k)) <= tuned.copied_carry
            if kind is Carry.STILL:
                self.scope |= {f"p{k}": start, f"r{k}": start}
            elif kind is Carry.SWAPPED and settles:
                self.table.copy(self.nbytes(k), home, start)
                self.settled[k] = shifted(self.scratch, self.layout.spare[k])
                self.scope |= {f"p{k}": home, f"r{k}": self.settled[k]}
            elif kind is Carry.IN_PLACE and small:
                self.table.copy(self.nbytes(k), home, start)
                self.scope |= {f"p{k}": home, f"r{k}": home}
            else:
                self.reads[k] = self.pointer(start)
                self.scope |= {f"p{k}": (self.reads[k], 0), f"r{k}": home}
            if kind is Carry.SWAPPED and not settles:
                places = home, shifted(self.scratch, self.layout.spare[k])
                write, third = (self.pointer(p) for p in (places if odd else places[::-1]))
                self.others[k] = write, third
                self.scope[f"r{k}"] = write, 0
        for k in range(len(self.carries), len(self.node.inputs)):
            self.scope[f"p{k}"] = self.writer.place(self.node.inputs[k])

    def advance(self) -> None:
        """What the body made of the carries is what its next run reads."""
        for k, place in self.settled.items():
            self.table.copy(self.nbytes(k), self.home(k), place)
        for k, register in self.reads.items():
            if k in self.others:
                self.table.rotate(register, *self.others[k])
            else:
                self.table.set(register, self.scope[f"r{k}"])
        if self.travel:
            self.table.bump(*(word for move in self.travel.items() for word in move))

    def leave(self, ran: bool) -> None:
        """Final values go home where they do not lie there already.

        `ran` promises that the body has run, so often that swapped carries end at home.
        """
        for k, kind in enumerate(self.carries):
            if kind is Carry.STILL or not ran:
                source = (self.reads[k], 0) if k in self.reads else self.scope[f"p{k}"]
            elif kind is Carry.FOLLOWS:
                source = self.reads[k], 0
            else:
                continue
            if source != self.home(k) and self.nbytes(k):
                self.table.copy(self.nbytes(k), self.home(k), source)


def while_rows(writer: TableWriter, node: Node) -> None:
    """Test, body, test, body ... until the test fails."""
    test, body = node.regions
    table, used = writer.table, writer.used
    loop = Loop(writer, node)
    loop.enter(odd=True)
    top = table.position
    with writer.inside({**loop.scope, "r0": loop.scratch}):
        writer.graph_rows(test)
        verdict = writer.base(region_of(test.results[0]))
    leave = table.branch(verdict)
    with writer.inside(loop.scope):
        writer.graph_rows(body)
    loop.advance()
    table.jump(top)
    table.patch(leave, table.position)
    loop.leave(ran=False)
    writer.used = used


def scan_rows(writer: TableWriter, node: Node) -> None:
    """The body for each slice; the registers of slices move, also backwards."""
    if writer.config.backend == "cuda":
        from graphc.codegen.gpu.recurrence import recurrence

        if (found := recurrence(node, writer.config)) is not None:
            writer.whole_rows(node, *found)
            return
    length, table, used = node.attrs["length"], writer.table, writer.used
    loop, known = Loop(writer, node), not isinstance(length, Size)
    loop.enter(odd=known and length % 2 == 1)
    if length:
        add_slices(loop)
        counter = loop.pointer((ABSENT, length if known else length + 1))
        skip = None if known else table.jump()  # it may be none: the loop is entered at its end
        top = table.position
        with writer.inside(loop.scope), writer.counting(known):
            writer.graph_rows(node.regions[0])
        loop.advance()
        if skip is not None:
            table.patch(skip, table.position)
        table.loop(counter, top)
    loop.leave(ran=known and length > 0)
    writer.used = used


def add_slices(loop: Loop) -> None:
    """Registers that move over the scanned operands and the stacked results."""
    node, count = loop.node, len(loop.carries)
    body = node.regions[0]
    slices = [
        (f"p{k}", loop.writer.place(node.inputs[k]), body.params[k].type)
        for k in range(count, count + node.attrs["scanned"])
    ]
    slices += [
        (f"r{k}", loop.writer.place(node, k), body.results[k].type)
        for k in range(count, len(body.results))
    ]
    for name, place, kind in slices:
        assert isinstance(kind, Type)
        step = kind.nbytes
        last = (greatest(node.attrs["length"], 1) - 1) * step  # with no rows it is not read
        register = loop.pointer(shifted(place, last if node.attrs["reverse"] else 0))
        loop.scope[name] = register, 0
        if step:
            loop.travel[register] = -step if node.attrs["reverse"] else step
    for k, number in enumerate(loop.layout.follows):
        if number >= 0:
            loop.scope[f"r{k}"] = loop.scope[f"r{number}"]


# ------------------------------------------------------------------------------------------ stacks


def stack_rows(writer: TableWriter, node: Node) -> None:
    writer.note(writer.table.stack(writer.stacks, writer.place(node)), node)
    writer.stacks += 1


def push_rows(writer: TableWriter, node: Node) -> None:
    stack, value = node.inputs
    row = writer.table.push(element_bytes(node), writer.place(stack), writer.place(value))
    writer.note(row, node)


def pop_rows(writer: TableWriter, node: Node) -> None:
    """Point a register at the value; it is copied where a later push could move it, or another
    segment use the register."""
    nbytes, register = element_bytes(node), writer.register()
    target = writer.place(node, 1)
    writer.note(writer.table.pop(nbytes, writer.place(node.inputs[0]), register), node)
    inside = (n for g in scheduled_graphs(writer.current) for n in g.nodes)
    if any(n.op.traits.push for n in inside) or not writer.in_order:
        writer.table.copy(nbytes, target, (register, 0))
    else:
        writer.moved[node, 1] = register, 0


def element_bytes(node: Node) -> int:
    """The size of the values on the stack that a node changes."""
    kind = node.inputs[0].type
    assert isinstance(kind, StackType)
    return kind.element.nbytes


def control_rows(traits: Traits) -> Callable[[TableWriter, Node], None] | None:
    """What writes the rows of an op with these traits; None if it is no control flow."""
    choices = (
        (traits.branch, branch_rows),
        (traits.tested, while_rows),
        (traits.counted, scan_rows),
        (traits.makes_stack, stack_rows),
        (traits.push, push_rows),
        (traits.pop, pop_rows),
        (traits.send, send_rows),
        (traits.recv, recv_rows),
    )
    return next((rows for holds, rows in choices if holds), None)
