"""Normal form of a contraction: groups of dims, their order, merging, roles of operands."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from graphc.codegen.tuning import tuned
from graphc.ir.sizes import hint_of, is_open, least

Axis = tuple[str, int, int]
IN_PLACE = "f32", "f64"  # types whose windows tiles read where they lie: others change format


class Dim(NamedTuple):
    """One loop of a contraction: extent and element strides in A, B and C."""

    extent: int
    a: int = 0
    b: int = 0
    c: int = 0


class NormalForm(NamedTuple):
    """A contraction in normal form; offsets are in elements from the data pointers.

    With `whole_rows` an epilogue gets every row of C at once. `prepacked`: whether A and B are, or
    can be, packed as panels before any call. `plain`: C holds the sums, nothing is made of them.
    """

    dtype: str
    batch: tuple[Dim, ...]
    m: tuple[Dim, ...]
    n: tuple[Dim, ...]
    k: tuple[Dim, ...]
    offset_a: int = 0
    offset_b: int = 0
    offset_c: int = 0
    whole_rows: bool = False
    prepacked: tuple[bool, bool] = (False, False)
    plain: bool = False


class Loop(NamedTuple):
    """A dim during normalisation, with the original dims it is made of (outermost first)."""

    extent: int
    a: int
    b: int
    c: int
    parts: tuple[tuple[str, int, int], ...]


class Groups(NamedTuple):
    """The four groups after normalisation."""

    batch: list[Loop]
    m: list[Loop]
    n: list[Loop]
    k: list[Loop]
    swapped: bool


def _loops(group: str, dims: Sequence[Dim]) -> list[Loop]:
    """Drop dims of extent one."""
    return [
        Loop(dim[0], dim[1], dim[2], dim[3], ((group, position, dim[0]),))
        for position, dim in enumerate(dims)
        if dim[0] != 1
    ]


def _merge(loops: list[Loop]) -> list[Loop]:
    """Fuse neighbours that are one longer dim in every operand."""
    if len(loops) < 2:
        return loops
    merged = [loops[0]]
    for inner in loops[1:]:
        outer, extent = merged[-1], inner.extent
        if (
            outer.a == inner.a * extent
            and outer.b == inner.b * extent
            and outer.c == inner.c * extent
        ):
            parts = outer.parts + inner.parts
            merged[-1] = Loop(outer.extent * extent, inner.a, inner.b, inner.c, parts)
        else:
            merged.append(inner)
    return merged


def _by_result(loops: list[Loop]) -> list[Loop]:
    """Order the dims of m or n as C lays them out, then merge."""
    if len(loops) > 1:
        loops = sorted(loops, key=lambda loop: -abs(loop.c))
    return _merge(loops)


def _by_operands(loops: list[Loop]) -> list[Loop]:
    """Order the dims of k as the operands lay them out, as far as they agree, then merge."""
    if len(loops) > 1:
        loops = sorted(loops, key=lambda loop: -abs(loop.a) - abs(loop.b))
    return _merge(loops)


def total(loops: list[Loop]) -> int:
    """Product of extents."""
    product = 1
    for loop in loops:
        product *= loop.extent
    return product


def normalise(contraction: NormalForm, columns: int, lanes: int = 1, together: int = 1) -> Groups:
    """Choose groups and roles: n holds C's unit stride where it can, shared B rows join m.

    Columns that lie in long runs in C are a product for each run, others go on in the next one.
    """
    groups = in_roles(contraction, columns, lanes, together)
    return in_known_runs(groups, short_runs(groups, columns))


def in_known_runs(groups: Groups, short: int) -> Groups:
    """The groups with a product for each run of columns in C, or, if runs are short, one of all."""
    if hint_of(short) <= 0:
        return runs_apart(groups)
    return groups._replace(batch=_merge(groups.batch))


def runs_apart(groups: Groups) -> Groups:
    """The groups with a product for each run of columns in C."""
    head = _break_in_result(groups.n)
    return groups._replace(batch=_merge(groups.batch + groups.n[:head]), n=groups.n[head:])


def short_runs(groups: Groups, columns: int) -> int:
    """Positive where columns lie in C in several runs of fewer than fill two tiles."""
    head = _break_in_result(groups.n)
    if not head:
        return 0
    return least(2 * columns - run_of(groups.n), total(groups.n[:head]) - 1)  # type: ignore[no-any-return]


def run_of(loops: list[Loop]) -> int:
    """How many rows (or columns) lie side by side in C."""
    return total(loops[_break_in_result(loops) :])


def joined_and_apart(groups: Groups) -> tuple[Groups, Groups]:
    """The groups where columns go on from run to run in C, and where each run is a product.

    Both have the same dims: those of the runs are of extent one where they are not.
    """
    head = _break_in_result(groups.n)
    runs, along = groups.n[:head], groups.n[head:]
    ones = [loop._replace(extent=1, parts=()) for loop in runs]
    joined = groups._replace(batch=groups.batch + ones, n=runs + along)
    return joined, groups._replace(batch=groups.batch + runs, n=ones + along)


def in_roles(contraction: NormalForm, columns: int, lanes: int, together: int) -> Groups:
    """The groups in their roles, all columns in n. So many steps of k are multiplied `together`.

    A short n changes places with m, unless n is what whole rows are made of; so does any where
    panels of the other operand, packed ahead, are better (`_better_across`).
    """
    m, n = _loops("m", contraction.m), _loops("n", contraction.n)
    batch = []
    for loop in _loops("batch", contraction.batch):
        if loop.b == 0 and loop.a != 0:
            m.append(loop)
        else:
            batch.append(loop)
    m, n, k = _by_result(m), _by_result(n), _by_operands(_loops("k", contraction.k))
    unit_m, unit_n = bool(m) and m[-1].c == 1, bool(n) and n[-1].c == 1
    few = (
        not contraction.whole_rows
        and hint_of(total(n)) * tuned.swap_ratio <= columns <= hint_of(total(m))
        and hint_of(total(k)) >= tuned.swap_sum
        and step_of(k, "a") == 1
    )
    swapped = bool(m) and ((unit_m and not unit_n) or not n or few)
    if m and n and contraction.prepacked[swapped] and not contraction.whole_rows:
        rows, width = (n, m) if swapped else (m, n)
        field = "a" if swapped else "b"
        copied = step_of(k, field) is None
        windows = field if copied and contraction.dtype in IN_PLACE else ""
        along = 0 if contraction.plain else tuned.scattered_steps
        across = tuned.across_steps_of_bytes if together == 4 else tuned.across_steps
        across = tuned.window_steps if windows else across
        turned = turns_out(width, rows)
        if contraction.plain and not turned:
            across = tuned.scattered_steps
        steps = across * together, along * together
        gain = tuned.window_gain if copied and not windows else 1.0
        if is_open((total(k),)) or total(k) >= (tuned.turned_sum if turned else tuned.swap_sum):
            swapped ^= _better_across(rows, width, k, columns, lanes, steps, gain, windows)
    if swapped:
        m, n = _exchange(n), _exchange(m)
        batch, k = _exchange(batch), _exchange(k)
        kept = [loop for loop in batch if not (loop.b == 0 and loop.a != 0)]
        if len(kept) < len(batch):
            m = _by_result(m + [loop for loop in batch if loop not in kept])
            batch = kept
    return Groups(batch, m, n, k, swapped)


def _better_across(
    m: list[Loop],
    n: list[Loop],
    k: list[Loop],
    columns: int,
    lanes: int,
    steps: tuple[int, int],
    gain: float,
    windows: str,
) -> bool:
    """Whether vectors along m, whose operand can be panels, are better than vectors along n.

    So they are where rows far apart meet half a tile, and where they leave fewer lanes empty: by
    so many times, and by more than it takes to store an element of the result across. `steps` are
    of k, for an element that is stored across, and for one of vectors along short runs of the
    result. `gain`: how much better vectors along m have to be. `windows`: the operand whose n are
    windows that can be read in place, if they are: those have to be copied to be vectors, unless m
    is copied to lie in lanes.
    """
    rows, width, depth = total(m), total(n), total(k)
    if is_open((rows, width, depth)) or rows < columns:
        return False
    if width * tuned.swap_panels <= columns:
        return depth >= tuned.swap_sum
    head = _break_in_result(n)
    across, along = steps
    run = width
    if not head:
        along = 0
    elif _is_batch(n[head:], columns):
        along, run = 0, total(n[head:])
    along_n = width // run * -(-run // lanes) * lanes * (rows + rows % 2)
    along_m = -(-rows // lanes) * lanes * (width + width % 2)
    if windows and reach_of([*n, *k], windows) > tuned.near_windows:
        return False
    if windows:
        in_lanes = -(-rows // columns) * columns * (width + tuned.window_rows)
        along_n = min(along_n + width * tuned.window_rows, in_lanes)
    return along_m * (depth + across) * gain < along_n * (depth + along)


def _is_batch(run: list[Loop], columns: int) -> bool:
    """Whether runs of the result are long enough to be products of their own, a batch."""
    long: bool = hint_of(total(run)) >= 2 * columns
    return long


def turns_out(rows: list[Loop], columns: list[Loop]) -> bool:
    """Should columns of finished sums become rows? Where C has a row's neighbours in the next row
    of the product, and many of them."""
    if not rows or not columns or rows[-1].c != 1 or step_of(columns, "c") == 1:
        return False
    known = not is_open((total(rows), total(columns)))
    return known and run_of(rows) >= tuned.turned_run


def _exchange(loops: list[Loop]) -> list[Loop]:
    """The same dims with A and B exchanged."""
    return [Loop(loop.extent, loop.b, loop.a, loop.c, loop.parts) for loop in loops]


def _break_in_result(loops: list[Loop]) -> int:
    """Position of the first of the trailing dims that C holds as one contiguous run."""
    expected, position = 1, len(loops)
    while position and loops[position - 1].c == expected:
        expected *= loops[position - 1].extent
        position -= 1
    return position if position < len(loops) else 0


def products_of_a(groups: Groups) -> int:
    """How many products, one after the other, have the same A."""
    return total([*takewhile(lambda loop: loop.a == 0, reversed(groups.batch))])


def step_of(loops: list[Loop], field: str) -> int | None:
    """The stride of a group in one operand if the group is one long dim there, else None."""
    loops = [loop for loop in loops if loop.extent != 1]
    if not loops:
        return 0
    strides: list[int] = [getattr(loop, field) for loop in loops]
    expected = strides[-1]
    for loop, stride in zip(reversed(loops), reversed(strides)):
        if stride != expected:
            return None
        expected *= loop.extent
    return strides[-1]


def reach_of(loops: list[Loop], field: str) -> int:
    """How many elements lie between the first and the last one of an operand, both included."""
    reach = 1
    for loop in loops:
        reach += (loop.extent - 1) * abs(getattr(loop, field))
    return reach


def laid_out(loops: list[Loop], field: str, step: int) -> list[Loop]:
    """The same dims as one long dim of this stride in an operand."""
    made = []
    for loop in reversed(loops):
        made.append(loop._replace(a=step) if field == "a" else loop._replace(b=step))
        step *= loop.extent
    return made[::-1]


def axes_of(contraction: NormalForm, groups: Groups) -> dict[str, tuple[Axis, ...]]:
    """Where every dim of the contraction went: (which group, divisor, extent) is its index there,
    (index in the group // divisor) % extent."""
    found: dict[tuple[str, int], Axis] = {}
    for name, loops in (("batch", groups.batch), ("i", groups.m), ("j", groups.n), ("k", groups.k)):
        divisor = 1
        for loop in reversed(loops):
            for group, position, extent in reversed(loop.parts):
                found[group, position] = (name, divisor, extent)
                divisor *= extent
    return {
        group: tuple(found.get((group, d), ("batch", 1, 1)) for d in range(len(dims)))
        for group, dims in (
            ("batch", contraction.batch),
            ("m", contraction.m),
            ("n", contraction.n),
            ("k", contraction.k),
        )
    }
