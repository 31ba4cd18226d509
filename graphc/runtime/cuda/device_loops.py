"""Loops of a known length that the device goes through by itself.

    round  1  2 ... p | p+1 ... p+u | ... | ... n      the first ones as they come, then turns of u
                        turn 1        2

The second turn is walked, too, to see how far each operand moves from turn to turn; as registers
move by sums alone, all later turns go on like that.  On the device a turn is the body of a node:
what moves is copied near first, so that addresses stay, and what was written is copied back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from graphc.base.record import record
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.device_branches import NeedsHost
from graphc.runtime.cuda.device_code import WINDOW_BYTES
from graphc.runtime.cuda.interface import COMPUTE, Act, Acts, Decision, Turns
from graphc.runtime.load.table import POP, PUSH, STACK, rows
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.interpreter import Walk
    from graphc.runtime.cuda.row_runners import Capture

_GRANULE = 256  # windows are as aligned near as they are far
_STATE_BYTES, _VERDICT = 16, 8  # how many turns are done, and where in it the verdict is
_LANES = 256
_LANE_BYTES = 64  # that a thread copies, if there are so many
_MOST_BLOCKS = 64  # for one window


@record(frozen=True)
class Span:
    """Where an operand is, and what of the memory around it is read or written."""

    address: int
    low: int
    high: int
    written: bool


@record
class Window:
    """Memory that moves from turn to turn: copied near before one, and back if it was written."""

    low: int
    high: int
    move: int
    written: bool
    near: int = 0

    def sweep(self, count: int) -> tuple[int, int]:
        """The memory of all turns."""
        reach = (count - 1) * self.move
        return self.low + min(0, reach), self.high + max(0, reach)


# ----------------------------------------------------------------------------- written down


def take_turns(capture: Capture, walk: Walk, row: int, target: int) -> None:
    """Write down the rounds that a loop row has left, or the next ones if they cannot be turns.

    Raises NeedsHost for what is none of the device's.
    """
    if any(walk.words[at] in (STACK, PUSH, POP) for at in rows_between(walk.words, target, row)):
        raise NeedsHost
    loop = _Loop(capture, walk, row, target)
    capture.extend(lead := loop.rounds(1))
    size = max(1, count_of(lead))
    # Even: what changes places in each round is back.  Fewer where slices are large.
    for length in dict.fromkeys((max(2, tuned.turn_acts // size // 2 * 2), 2)):
        if loop.left * size <= tuned.straight_acts or loop.left < 3 * length:
            capture.extend(loop.rounds(loop.left))
        elif loop.repeats(length, size):
            return
    capture.plain.add(row)


class _Loop:
    """A loop of a known length on the way of a walk."""

    def __init__(self, capture: Capture, walk: Walk, row: int, target: int) -> None:
        self.capture, self.walk, self.row, self.target = capture, walk, row, target
        self.counter = walk.words[row + 2]

    @property
    def left(self) -> int:
        """How many rounds are not done."""
        return self.walk.bases[self.counter]

    def rounds(self, count: int) -> list[Act | Decision | Turns]:
        """What so many rounds do."""
        made: list[Act | Decision | Turns] = []
        for _ in range(count):
            made += self.capture.region(self.walk, self.target, self.row)
            self.walk.bases[self.counter] -= 1
        return made

    def turn(self, length: int) -> tuple[Acts, tuple[list[int], list[int]]]:
        """What a turn does, and how registers move in it and addresses are compared."""
        before, start = list(self.walk.bases), len(self.capture.compared)
        acts = self.rounds(length)
        moves = [b - a for a, b in zip(before, self.walk.bases, strict=True)]
        return acts, (moves, self.capture.compared[start:])

    def repeats(self, length: int, size: int) -> bool:
        """Write down all rounds as turns, or the first ones if they are none; whether they are."""
        size *= self.left
        self.capture.extend(self.rounds(self.left % length))
        count = self.left // length
        (first, way), (second, again) = self.turn(length), self.turn(length)
        made = Turns(self.row, count, first, second)
        if way != again or not fits(self.capture, made, size):
            self.capture.extend([*first, *second])
            return False
        self.capture.extend([made])
        moved_on = zip(self.walk.bases, way[0], strict=True)
        self.walk.bases[:] = [base + (count - 2) * move for base, move in moved_on]
        return True


def rows_between(words: Sequence[int], begin: int, end: int) -> Iterator[int]:
    """The rows from one to another."""
    return (begin + at for at in rows(words[begin:end]))


def count_of(acts: Acts) -> int:
    """How many nodes of a graph acts are, about."""
    return sum(map(_nodes, acts))


def _nodes(act: Act | Decision | Turns) -> int:
    if isinstance(act, Decision):
        return 2 + sum(map(count_of, act.ways))
    return 4 + count_of(act.first) if isinstance(act, Turns) else 1


def fits(capture: Capture, turns: Turns, size: int) -> bool:
    """Whether copies near say the same, and are not too much beside what is done."""
    try:
        windows, _ = windows_of(capture, turns)
    except NeedsHost:
        return False
    near = sum(window.high - window.low for window in windows)
    acts = max(1, count_of(turns.first))
    large = near > tuned.near_bytes * acts
    return near <= tuned.near_most and not (large and size <= tuned.planned_steps)


# ----------------------------------------------------------------------------------- windows


def spans_of(capture: Capture, acts: Acts) -> Iterator[Span]:
    """The operands of acts. Raises NeedsHost where their sizes are not known."""
    for act in acts:
        if isinstance(act, Turns):
            pairs = zip(spans_of(capture, act.first), spans_of(capture, act.second), strict=True)
            both = list(pairs)
            for k in range(2):
                yield from (_swept(pair[k].address, *pair, act.count) for pair in both)
        elif isinstance(act, Decision):
            yield Span(act.verdict, act.verdict, act.verdict + 1, written=False)
            for way in act.ways:
                yield from spans_of(capture, way)
        else:
            yield from _operands(capture, act)


def _swept(address: int, first: Span, second: Span, count: int) -> Span:
    """What is read or written in all turns, by an operand of the first ones."""
    reach = (count - 1) * (second.address - first.address)
    return Span(address, first.low + min(0, reach), first.high + max(0, reach), first.written)


def _operands(capture: Capture, act: Act) -> Iterator[Span]:
    head, *numbers = act.key
    if head == "copy":
        nbytes, target, source = numbers
        yield Span(target, target, target + nbytes, written=True)
        yield Span(source, source, source + nbytes, written=False)
        return
    extents = capture.frame.part.image.extents.get(head, ())
    if len(extents) != len(numbers):
        raise NeedsHost
    for address, (nbytes, written) in zip(numbers, extents, strict=True):
        yield Span(address, address, address + nbytes, written)


def windows_of(capture: Capture, turns: Turns) -> tuple[list[Window], list[Window | None]]:
    """The windows of turns, and that of every operand, or None for one that stays. Raises
    NeedsHost where copies would change what is computed.
    """
    first, second = (list(spans_of(capture, acts)) for acts in (turns.first, turns.second))
    moves = [
        b.address - a.address if a.low < a.high else 0 for a, b in zip(first, second, strict=True)
    ]
    if any(b.low - a.low != move for a, b, move in zip(first, second, moves, strict=True) if move):
        raise NeedsHost
    windows: list[Window] = []
    pairs = [(move, span) for move, span in zip(moves, first, strict=True) if move]
    for move, span in sorted(pairs, key=lambda pair: (pair[0], pair[1].low)):
        last = windows[-1] if windows else None
        if last is not None and last.move == move and span.low <= last.high:
            last.high = max(last.high, span.high)
            last.written |= span.written
        else:
            windows.append(Window(span.low, span.high, move, span.written))
    still = [
        Window(span.low, span.high, 0, span.written)
        for span, move in zip(first, moves, strict=True)
        if not move and span.low < span.high
    ]
    for k, window in enumerate(windows):
        others = [*still, *(other for other in windows[:k] if other.move != window.move)]
        if any(_meet(window, other, turns.count) for other in others):
            raise NeedsHost
    of = [_window_of(windows, span, move) for span, move in zip(first, moves, strict=True)]
    return windows, of


def _meet(one: Window, other: Window, count: int) -> bool:
    """Whether one writes what the other reads or writes, in whatever turns."""
    (low, high), (begin, end) = one.sweep(count), other.sweep(count)
    return (one.written or other.written) and low < end and begin < high


def _window_of(windows: Iterable[Window], span: Span, move: int) -> Window | None:
    if not move:
        return None
    return next(w for w in windows if w.move == move and w.low <= span.low <= w.high)


# --------------------------------------------------------------------------------- the device


def on_device(capture: Capture, acts: Acts) -> Iterator[Act | Decision]:
    """Acts with all turns as what the device does."""
    for act in acts:
        if isinstance(act, Turns):
            yield from _as_loop(capture, act)
        elif isinstance(act, Decision):
            ways = tuple(tuple(on_device(capture, way)) for way in act.ways)
            if act.repeats:
                ways = (tuple(_copied_at_once(capture, act.row, ways[0])),)
            yield Decision(act.row, act.verdict, ways, act.words)
        else:
            yield act


def _as_loop(capture: Capture, turns: Turns) -> Iterator[Act | Decision]:
    near = _Near(capture, turns)
    places = near.places(turns)
    body = [moved(capture, act, places) for act in turns.first]
    way = (
        *near.copies(back=False),
        *on_device(capture, body),
        *near.copies(back=True),
        near.own("advance", near.start, turns.count),
    )
    yield near.own("begin", near.start)
    yield Decision(turns.row, near.start + _VERDICT, (way,), capture.frame.looks(turns.row))


class _Near:
    """Memory of turns on the device: their state, tables of windows, and the windows."""

    def __init__(self, capture: Capture, turns: Turns) -> None:
        self.capture, self.driver, self.row = capture, capture.driver, turns.row
        self.windows, self.of = windows_of(capture, turns)
        size = _STATE_BYTES + 2 * WINDOW_BYTES * len(self.windows)
        for window in self.windows:
            window.near = -(-size // _GRANULE) * _GRANULE + window.low % _GRANULE
            size = window.near + window.high - window.low
        self.memory = capture.frame.part.memory.block(size + _GRANULE)
        self.start = -(-self.memory.address // _GRANULE) * _GRANULE
        self.table = self.start + _STATE_BYTES
        for window in self.windows:
            window.near += self.start

    def places(self, turns: Turns) -> Iterator[int]:
        """Where the operands are in a turn."""
        spans = spans_of(self.capture, turns.first)
        for span, window in zip(spans, self.of, strict=True):
            yield span.address if window is None else window.near + span.address - window.low

    def own(self, name: str, *words: int) -> Act:
        """A kernel of one thread."""
        return _own(self.capture, self.row, self.memory, name, *words)

    def copies(self, *, back: bool) -> Iterator[Act]:
        """The copies of windows near, or back of those that were written."""
        some = [window for window in self.windows if window.written or not back]
        if not some:
            return
        rows = [(w.near, w.low, w.move, w.high - w.low) for w in some]
        place, self.table = self.table, self.table + WINDOW_BYTES * len(rows)
        yield _moves(self.capture, self.row, self.memory, place, rows, self.start, int(back))


def _moves(
    capture: Capture,
    row: int,
    memory: object,
    place: int,
    rows: Sequence[tuple[int, int, int, int]],
    state: int,
    back: int = 0,
) -> Act:
    """The kernel that copies windows, whose table is put in some place."""
    table = np.array(rows, np.int64)
    capture.driver.copy(place, address_of(table), table.nbytes, COMPUTE)
    capture.driver.synchronize(COMPUTE)
    most = max(size for *_, size in rows)
    each = min(_MOST_BLOCKS, -(-most // (_LANES * _LANE_BYTES)))
    words = place, each, state, back
    return _own(capture, row, memory, "move", *words, shape=(each * len(rows), _LANES))


def _own(
    capture: Capture,
    row: int,
    memory: object,
    name: str,
    *words: int,
    shape: tuple[int, int] = (1, 1),
) -> Act:
    """A kernel of the runtime, which lives on memory of its own."""
    driver = capture.driver
    prepared = driver.prepare(driver.own(name), (*shape, 0), (*words, row))
    return Act((name, *words), partial(_kept, memory, partial(driver.launch, prepared)))


def _copied_at_once(
    capture: Capture, row: int, acts: Sequence[Act | Decision]
) -> Iterator[Act | Decision]:
    """Acts with small copies that follow one another as one kernel: each is a node otherwise."""
    copies: list[Act] = []
    for act in (*acts, None):
        if isinstance(act, Act) and _joins(act, copies):
            copies.append(act)
            continue
        if len(copies) > 1:
            rows = [(target, source, 0, size) for _, size, target, source in _keys(copies)]
            memory = capture.frame.part.memory.block(WINDOW_BYTES * len(rows))
            yield _moves(capture, row, memory, memory.address, rows, memory.address)
        else:
            yield from copies
        copies = [act] if isinstance(act, Act) and _joins(act, []) else []
        if act is not None and not copies:
            yield act


def _joins(act: Act, copies: Sequence[Act]) -> bool:
    """Whether an act is a small copy that may happen at the same time as others."""
    if act.key[0] != "copy" or act.key[1] > tuned.moved_at_once:
        return False
    ((_, size, target, source),) = _keys([act])
    return all(
        not (target < end and begin < target + size)
        and not (source < to + n and to < source + size)
        for _, n, to, of in _keys(copies)
        for begin, end in ((to, to + n), (of, of + n))
    )


def _keys(copies: Sequence[Act]) -> list[tuple[str, int, int, int]]:
    return [copy.key for copy in copies]


def _kept(memory: object, step: partial[None], stream: int) -> None:
    """A step that lives on memory of its own."""
    step(stream)


def moved(
    capture: Capture, act: Act | Decision | Turns, places: Iterator[int]
) -> Act | Decision | Turns:
    """An act on operands that lie elsewhere, in the order of `spans_of`."""
    if isinstance(act, Turns):
        first, second = (
            tuple(moved(capture, each, places) for each in acts) for acts in (act.first, act.second)
        )
        return Turns(act.row, act.count, first, second)
    if isinstance(act, Decision):
        verdict = next(places)
        ways = tuple(tuple(moved(capture, each, places) for each in way) for way in act.ways)
        return Decision(act.row, verdict, ways, act.words)
    head, *numbers = act.key
    if head == "copy":
        return capture.copying(numbers[0], next(places), next(places))
    return capture.calling(head, tuple(next(places) for _ in numbers))
