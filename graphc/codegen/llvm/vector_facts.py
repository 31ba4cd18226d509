"""Which loops are written as vector instructions, and in what shape.

A `vector` loop qualifies when every value it loads or stores lies side by side from one iteration
to the next, backwards too, a few elements apart, beside others of its own iteration or in one
place, and what it combines across iterations may be combined in any order.  Where every instruction
takes a mask, values may lie anywhere, and some statements may be those of some iterations only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphc.base.record import record, replace
from graphc.codegen.llvm.interleave import Strided
from graphc.codegen.llvm.target import Target
from graphc.codegen.tuning import tuned
from graphc.ir.sizes import Size
from graphc.ir.unknowns import Monomial
from graphc.loops.facts import Changes, Range, dissolves, extent_of
from graphc.loops.nest import (
    Assign,
    Declare,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Prefetch,
    Statement,
    Store,
    Update,
    postorder,
    rare_operands,
)

Term = Expr | Monomial  # what an index is a sum of
Terms = frozenset[tuple[Term, int]]  # an index without its constant
Place = tuple[int, Terms]  # a buffer, and where in it
_MASKS = 512  # vector bits from which on every instruction takes a mask
_MOST_BITS = 64  # elements that are masked together
_GATHERED = (4, 8)  # bytes of elements


@record(frozen=True)
class Shape:
    """Elements per instruction, copies of the body per iteration; whether masks cut the last
    vector, and whether the vectors before it go without.
    """

    lanes: int
    copies: int
    masked: bool
    apart: bool = True


@record(frozen=True)
class Comb:
    """Loads that take what lies `step` elements apart, out of one row of elements.

    a[4*i + 1], a[4*i + 3]:     first a[4*i + 1], step 4, teeth at 0 and 2
    """

    first: Expr
    step: int
    teeth: tuple[tuple[int, Expr], ...]

    @property
    def reach(self) -> int:
        """Elements of an iteration, up to the last one that is taken."""
        return self.teeth[-1][0] + 1


class VectorFacts:
    """What a vector loop looks like from one iteration to the next."""

    def __init__(self, loop: For, kernel: Kernel, changes: Changes) -> None:
        self.loop = loop
        self.strict = kernel.strict
        self.changes = changes
        self.written = changes.writes(loop)
        self.inner = {s.register.index for s in _inside(loop.body) if isinstance(s, Declare)}
        self.carried: dict[int, str] = {}  # registers of outside, how they are combined
        self.weight = 0
        self.buffers = kernel.buffers
        self.itemsize = 1
        self.widest = 1  # elements from one iteration to the next
        self.gathers = False  # every lane has an address of its own
        self.woven: dict[int, list[Store]] = {}  # stores that fill what lies between, by the first
        self.repeats = any(s.kind == "within" for s in _inside(loop.body) if isinstance(s, For))
        self._combs: dict[Expr, Comb] = {}
        self._apart: dict[object, list[tuple[int, Expr]]] = {}  # loads of the same but a constant
        self._variables = {s.variable for s in _inside(loop.body) if isinstance(s, For)}
        self._strides: dict[Expr, int | None] = {}
        self._known: dict[Expr, bool] = {}
        self._counting: dict[Expr, bool] = {}
        self._seen: set[Expr] = set()
        self._checked: set[Expr] = set()
        self._terms: dict[Expr, tuple[Terms, int]] = {}

    # -- expressions

    def stride(self, expr: Expr) -> int | None:
        """What an iteration adds to the value; None if that is not always the same."""
        self._look(expr)
        return self._strides[expr]

    def known(self, expr: Expr) -> bool:
        """It depends on no loop inside this one."""
        self._look(expr)
        return self._known[expr]

    def fixed(self, expr: Expr) -> bool:
        """It can be computed ahead of the loop: not even i - (i - 1) counts with it."""
        return self.stride(expr) == 0 and self._known[expr] and not self._counting[expr]

    def terms(self, index: Expr) -> tuple[Terms, int]:
        """An index as `split` takes it apart, once."""
        found = self._terms.get(index)
        if found is None:
            terms, constant = split(index)
            found = self._terms[index] = frozenset(terms.items()), constant
        return found

    def _look(self, root: Expr) -> None:
        if root in self._known:
            return
        known, counting = self._known, self._counting
        for expr in postorder([root], self._seen):
            args = expr.args
            self._strides[expr] = self._stride(expr)
            known[expr] = expr not in self._variables and all(map(known.__getitem__, args))
            counting[expr] = expr is self.loop.variable or any(map(counting.__getitem__, args))

    def _stride(self, expr: Expr) -> int | None:
        if expr is self.loop.variable:
            return 1
        steps = [self._strides[a] for a in expr.args]
        if not self.written.isdisjoint(self.changes.needs(expr)):
            return None
        if not any(steps) and None not in steps:
            return 0
        if None in steps or expr.dtype.name != "i64":
            return None
        x, y = (*steps, 0)[:2]
        assert x is not None
        assert y is not None
        if expr.op in ("add", "sub"):
            return x + y if expr.op == "add" else x - y
        if expr.op == "mul":
            by = {a.data for a, step in zip(expr.args, steps, strict=True) if not step}
            constant = all(a.op == "const" or s for a, s in zip(expr.args, steps, strict=True))
            return (x or y) * by.pop() if constant and len(by) == 1 else None
        return None

    # -- whether it can be done

    def possible(self) -> bool:
        """Whether vector instructions can do all of the loop; counts them on the way."""
        for loop in (self.loop, *_inside(self.loop.body)):
            if isinstance(loop, For):
                self._weave(loop.body)
        return all(self._allowed(s) for s in _inside(self.loop.body))

    def _weave(self, body: list[Statement]) -> None:
        """Find stores that follow one another in memory and fill what lies between iterations."""
        start = 0
        while start < len(body):
            run = self._run(body[start:])
            if len(run) > 1:
                self.woven[id(run[0])] = run
                self.widest = max(self.widest, len(run))
            start += len(run)

    def _run(self, body: list[Statement]) -> list[Store]:
        first = body[0]
        step = self.stride(first.index) if isinstance(first, Store) else None
        run = [s for s in body[: step or 0] if isinstance(s, Store)]
        if step is None or not 1 < step <= tuned.most_apart or len(run) < step:
            return [first]  # type: ignore[list-item]
        assert isinstance(first, Store)
        terms, constant = self.terms(first.index)
        fits = all(
            s.buffer is first.buffer
            and self.terms(s.index) == (terms, constant + k)
            and self.changes.writes(first).isdisjoint(self.changes.needs(s.value))
            for k, s in enumerate(run)
        )
        return run if fits else [first]

    def sought(self) -> Update | None:
        """The only statement, where it looks for the first iteration of which a condition holds:
        r = min(r, i if c(i) else none), with a `none` that no i is above."""
        first = self.loop.body[0] if len(self.loop.body) == 1 else None
        if not isinstance(first, Update) or first.combine != "min":
            return None
        if first.value.op != "select" or self.fixed(first.value.args[0]):
            return None
        place, none, stop = *first.value.args[1:], self.loop.stop
        counted = place.args[0] if place.op == "cast" else place
        never_above = none is stop if none.op != "const" else _is_most(none, stop)
        return first if counted is self.loop.variable and never_above else None

    def comb(self, load: Expr) -> Comb:
        """The loads that are taken together with one whose elements lie apart."""
        if load not in self._combs:
            step = self.stride(load.args[0])
            assert step is not None
            others = sorted(self._apart[self._row(load)], key=lambda other: other[0])
            while others:
                start, first = others[0]
                teeth = tuple((c - start, e) for c, e in others if c < start + step)
                self._combs |= dict.fromkeys((e for _, e in teeth), Comb(first, step, teeth))
                others = others[len(teeth) :]
        return self._combs[load]

    def _row(self, load: Expr) -> object:
        return load.data, self.terms(load.args[0])[0]

    def _allowed(self, statement: Statement) -> bool:
        match statement:
            case For():
                return dissolves(statement, in_vector=True) or statement.kind == "within"
            case Declare(value=value):
                return self._value(value)
            case Assign(register=register, value=value):
                return register.index in self.inner and self._value(value)
            case Update(value=value):
                return self._combines(statement) and self._value(value)
            case Store(buffer=buffer, index=index, value=value):
                self._counts(buffer.dtype.itemsize)
                side = self.stride(index) == 1 or self._stores(statement)
                return side and self._value(value)
            case Fail(condition=condition):
                return self._value(condition)
            case Prefetch(index=index):
                return self.stride(index) == 0
        return False

    def _combines(self, update: Update) -> bool:
        index, combine = update.register.index, update.combine
        self._counts(1)
        if index in self.inner:
            return True
        if self.strict and update.register.dtype.kind == "f" and combine in ("add", "mul"):
            return False
        return self.carried.setdefault(index, combine) == combine

    def _value(self, root: Expr) -> bool:
        pending = [root]
        while pending:
            expr = pending.pop()
            if expr in self._checked or self.fixed(expr):
                continue
            self._checked.add(expr)
            if not self._instruction(expr):
                return False
            if expr.op != "load":
                pending.extend(rare_operands(expr) if expr.op == "rare" else expr.args)
        return True

    def _instruction(self, expr: Expr) -> bool:
        self._counts(1 if expr.op == "var" else expr.dtype.itemsize)
        match expr.op:
            case "load":
                return self._loads(expr)
            case "reg":
                return expr.data[0] in self.inner
            case "idiv" | "irem":  # no vector instruction: one division for each lane
                return False
            case "call":
                self.weight += tuned.call_weight
        return True

    def _stores(self, statement: Store) -> bool:
        return any(statement in run for run in self.woven.values())

    def _loads(self, expr: Expr) -> bool:
        step = self.stride(expr.args[0])
        if step == -1:  # the vector is reversed
            self.weight += 1
            return True
        if step == 0 and self.repeats:  # the same for all, anew each time
            return True
        if step is None or not 1 <= step <= tuned.most_apart:
            return False
        if step > 1:
            constant = self.terms(expr.args[0])[1]
            self._apart.setdefault(self._row(expr), []).append((constant, expr))
            self.widest = max(self.widest, step)
            self.weight += 2 * step  # loads, their masks and what shuffles them
        return True

    def _counts(self, itemsize: int) -> None:
        self.weight += 1
        self.itemsize = max(self.itemsize, itemsize)


class ScatteredFacts(VectorFacts):
    """A loop with elements anywhere in memory, or with statements under conditions."""

    def __init__(self, loop: For, kernel: Kernel, changes: Changes) -> None:
        super().__init__(loop, kernel, changes)
        branches = (s for s in _inside(loop.body) if isinstance(s, If))
        self._under = {id(s) for branch in branches for s in _inside(branch.body)}
        self._is_guarded = False  # the statement in question is one of them

    def is_anywhere(self, index: Expr) -> bool:
        """Whether every lane has an address of its own: they are gathered, or scattered."""
        step = self.stride(index)
        return step is None or step < -1 or step > tuned.most_apart

    def _allowed(self, statement: Statement) -> bool:
        self._is_guarded = id(statement) in self._under
        if isinstance(statement, If):
            return self._value(statement.condition)
        if self._is_guarded and isinstance(statement, Fail):
            return False  # what all iterations share is asked ahead of the loop
        return super()._allowed(statement)

    def _value(self, root: Expr) -> bool:
        # What all iterations share is computed ahead of the loop, where no condition keeps a load
        # from reading what there is not.
        ahead = self._is_guarded and any(
            e.op == "load" and self.fixed(e) for e in postorder([root])
        )
        return not ahead and super()._value(root)

    def _instruction(self, expr: Expr) -> bool:
        if expr.op not in ("idiv", "irem"):
            return super()._instruction(expr)
        self._counts(expr.dtype.itemsize)
        by = expr.args[1]  # by a power of two it is a shift or a mask
        return by.op == "const" and by.data > 0 and by.data & (by.data - 1) == 0

    def _stores(self, statement: Store) -> bool:
        if super()._stores(statement):
            return True
        return self._reaches(statement.index, statement.buffer.dtype.itemsize)

    def _loads(self, expr: Expr) -> bool:
        index = expr.args[0]
        if self.is_anywhere(index):
            return self._reaches(index, expr.dtype.itemsize)
        # LLVM reverses what a mask has loaded by one instruction, which reads what the mask leaves
        # out; rows of elements apart are masked by how many iterations there are.
        return (self.stride(index) in (0, 1) or not self._is_guarded) and super()._loads(expr)

    def _reaches(self, index: Expr, nbytes: int) -> bool:
        """Whether an instruction takes elements of that size from anywhere."""
        self.gathers = True
        if nbytes not in _GATHERED or not self.is_anywhere(index):
            return False
        return self.stride(index) is not None or self._value(index)


class RowFacts(VectorFacts):
    """A loop whose iterations are rows, of which elements that lie side by side are taken."""

    def __init__(self, loop: For, kernel: Kernel, changes: Changes) -> None:
        super().__init__(loop, kernel, changes)
        self.loaded: dict[Place, Strided] = {}
        self.stored: dict[Place, Strided] = {}
        self._loaded: dict[tuple[Place, int], set[int]] = {}  # constants by place and stride
        self._stored: dict[tuple[Place, int], set[int]] = {}

    def possible(self) -> bool:
        if not all(self._allowed(s) for s in _inside(self.loop.body)):
            return False
        self.loaded, self.stored = _rows_of(self._loaded), _rows_of(self._stored)
        strided = [*self.loaded.values(), *self.stored.values()]
        apart = {k for k, _ in self.stored}.isdisjoint(k for k, _ in self.loaded)
        return apart and all(found.worthwhile for found in strided)

    def _stores(self, statement: Store) -> bool:
        return self._of_row(self._stored, statement.buffer.index, statement.index)

    def _loads(self, expr: Expr) -> bool:
        index = expr.args[0]
        return self.stride(index) == 1 or self._of_row(self._loaded, expr.data[0], index)

    def _of_row(self, found: dict[tuple[Place, int], set[int]], buffer: int, index: Expr) -> bool:
        """Note an element of a row; whether its place is known and it is the first there."""
        stride = self.stride(index)
        if stride is None or stride < 2 or not self.known(index):
            return False
        terms, constant = self.terms(index)
        places = found.setdefault(((buffer, terms), stride), set())
        first = constant not in places
        places.add(constant)
        return first


def _rows_of(found: dict[tuple[Place, int], set[int]]) -> dict[Place, Strided]:
    return {place: Strided(stride, tuple(sorted(at))) for (place, stride), at in found.items()}


def _is_most(none: Expr, stop: Expr) -> bool:
    """Whether a literal is a number of iterations that is not below what a loop runs up to."""
    return stop.op == "const" and none.dtype.kind in "iu" and none.data >= stop.data


def _inside(body: list[Statement]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, For | If):
            yield from _inside(statement.body)


def split(index: Expr) -> tuple[dict[Term, int], int]:
    """An index as terms, each so many times, plus a constant."""
    terms: dict[Term, int] = {}
    constant, pending = 0, [(index, 1)]
    while pending:
        expr, times = pending.pop()
        factors = [arg for arg in expr.args if arg.op == "const"] if expr.op == "mul" else []
        if expr.op == "const":
            constant += times * int(expr.data)
        elif expr.op == "size":
            for part, count in expr.data.terms:
                if part:
                    terms[part] = terms.get(part, 0) + times * count
                else:
                    constant += times * count
        elif expr.op in ("add", "sub"):
            left, right = expr.args
            pending += [(right, times if expr.op == "add" else -times), (left, times)]
        elif factors:
            other = expr.args[expr.args[0] is factors[0]]
            pending.append((other, times * int(factors[0].data)))
        else:
            terms[expr] = terms.get(expr, 0) + times
    return terms, constant


def facts_of(loop: For, kernel: Kernel, changes: Changes, masks: bool = True) -> VectorFacts | None:
    """What there is to know of a loop that vector instructions can do; None for any other."""
    if loop.kind != "vector":
        return None
    facts = any_facts_of(loop, kernel, changes, masks)
    if facts is None and masks:
        scattered = ScatteredFacts(loop, kernel, changes)
        return scattered if scattered.possible() else None
    return facts


def any_facts_of(loop: For, kernel: Kernel, changes: Changes, masks: bool) -> VectorFacts | None:
    """The same of a loop of any kind whose iterations do not depend on one another."""
    facts = VectorFacts(loop, kernel, changes)
    if facts.possible() and (masks or facts.widest == 1):
        return facts
    rows = RowFacts(loop, kernel, changes)
    return rows if rows.possible() else None


def count_of(loop: For, bounds: Callable[[Expr], Range | None]) -> int | None:
    """Iterations of a loop between literals, sizes or indices that are a literal apart.

    `bounds` says where an index certainly lies: blocks that are always full end at a minimum.
    """
    stop = loop.stop
    if stop.op == "min":
        x, y = (bounds(a) for a in stop.args)
        if x is not None and y is not None and (x[1] <= y[0] or y[1] <= x[0]):
            stop = stop.args[x[1] > y[0]]
    if stop.op == "add" and any(arg is loop.start for arg in stop.args):
        more = stop.args[stop.args[0] is loop.start]
        return max(0, int(more.data)) if more.op == "const" else None
    extent = extent_of(replace(loop, stop=stop))
    return None if isinstance(extent, Size) else extent


def shape_of(facts: VectorFacts, target: Target, count: int | None) -> Shape | None:
    """How a loop that is `possible` is written; None if it is better left alone."""
    if count == 0:
        return None
    most = 1 << tuned.most_lanes.bit_length() - 1
    if isinstance(facts, RowFacts):
        return _rows_shape(min(target.lanes(facts.itemsize), most), count)
    lanes = min(target.lanes(facts.itemsize), most, _MOST_BITS // facts.widest)
    lanes = 1 << lanes.bit_length() - 1
    if target.double_pumped and lanes > 2 and moves_much(facts):
        lanes //= 2
    masks = has_masks(target)
    if facts.widest > 1 and not masks:
        return None
    if count is not None and count < lanes:
        lanes = 1 << max(1, (count - 1).bit_length())
    if (
        count is not None
        and count < tuned.half_vectors * lanes
        and facts.weight <= tuned.light_weight
    ):
        lanes //= 2 if count % lanes == lanes // 2 and lanes > 2 else 1
    if count is not None and count % lanes == 0:
        return Shape(lanes, _copies(facts, count // lanes), masked=False)
    if not masks and count is not None and count < lanes:
        return None
    if masks and facts.weight > tuned.heavy_weight:
        return Shape(lanes, 1, masked=True, apart=False)
    return Shape(lanes, _copies(facts, count and count // lanes), masks)


def moves_much(facts: VectorFacts) -> bool:
    """Does a loop wait for memory alone, with elements beyond the caches of a core, of one size?"""
    if facts.carried or facts.weight > tuned.moving_weight:
        return False
    sizes = [(b.size, b.dtype.itemsize) for b in facts.buffers]
    return all(isinstance(n, int) and each == facts.itemsize for n, each in sizes) and (
        sum(n * each for n, each in sizes) > tuned.moved_bytes
    )


def _rows_shape(lanes: int, count: int | None) -> Shape | None:
    while count is not None and count < lanes:
        lanes //= 2
    return Shape(lanes, 1, masked=False) if lanes > 1 else None


def has_masks(target: Target) -> bool:
    return target.vector_bits >= _MASKS


def _copies(facts: VectorFacts, trips: int | None) -> int:
    """Copies that leave no vector over, if there are any; sums must not wait for one another."""
    limit = tuned.chain_weight if facts.carried else tuned.light_weight
    limit = tuned.gathered_weight if facts.gathers else limit
    most = min(max(1, limit // max(1, facts.weight)), trips or tuned.most_copies, tuned.most_copies)
    even = [n for n in range(most, 0, -1) if trips is not None and trips % n == 0]
    enough = most - 1 if facts.carried else 1
    return next((n for n in even if n >= enough), most if facts.carried or trips is None else 1)
