"""Hostile uses of every op: attributes, operands and indices that no sane program has.

`cases(op)` derives them from the op's schema and good samples.  `attempt(case)` compiles and runs
one on operands beside closed pages and compares it with the reference: it returns None where the op
is refused with a GraphError or right, else what is wrong.

    python tests/support/hostile_ops.py sample COUNT [SEED]
        runs some in this process (the suite does)
    python tests/support/hostile_ops.py [SHARE] [OP ...]
        runs all of them, or one in SHARE, each in a process of its own that is timed and weighed

Ops without samples are in `hostile_texts`.
"""

from __future__ import annotations

import math
import mmap
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from guarded_arrays import guarded
from hostile_texts import attempt_text, hostile_texts
from op_harness import tensors

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.op import OPS, Attr, Compute, Op, Sample, Scalar
from graphc.ir.types import DTYPES, AnyType, TupleType, dtype, leaves
from graphc.ops.record.value import emit, literal_type

gc.sum  # noqa: B018  a public name fills the op table

INTEGERS = (0, 1, -1, 2, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, 10**40)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-300, 1e30, -1e300, math.nan, math.inf, -math.inf, 2**62, 10**400)
TEXTS = ("", "x" * 5000, "->", ",->", "a,a->a", "ab,bc->ac", "aa,ab->b", "\ud800", "raise", "max")
RTOL = {"f16": 4e-3, "bf16": 3e-2, "f32": 4e-6, "f64": 4e-14, "c64": 8e-6, "c128": 8e-14}
SAMPLES = 5  # of an op that cases are made of
LARGE = 2**26  # bytes of operands and results, above which an accepted op is not run
MEMORY = 2**31  # address space of a process beyond what it has


@dataclass(frozen=True)
class Case:
    """One use of an op."""

    op: str
    operands: tuple[np.ndarray, ...]
    attrs: dict[str, Any]
    tolerance: float = 1.0

    def __str__(self) -> str:
        arrays = ", ".join(f"{dtype(a.dtype)}{list(a.shape)}" for a in self.operands)
        attrs = ", ".join(f"{k}={str(v)[:80]}" for k, v in self.attrs.items())
        return f"{self.op}({arrays}) {{{attrs}}}"


# ------------------------------------------------------------------------------------ cases


def cases(op: Op) -> list[Case]:
    """Every hostile use of an op that its samples and schema give rise to."""
    made: dict[Any, Case] = {}
    for sample in _distinct(op):
        plain = Case(op.name, tuple(map(np.asarray, sample.operands)), dict(sample.attrs))
        plain = replace(plain, tolerance=sample.tolerance)
        for case in (plain, *_by_attribute(op, plain), *_by_extent(plain), *_by_content(plain)):
            case = _legal(case)
            data = tuple(a.tobytes()[:64] for a in case.operands)
            made.setdefault((str(case), data), case)
    return list(made.values())


def _legal(case: Case) -> Case:
    """The case with a sorted vector where the op is for sorted vectors alone."""
    if case.op != "searchsorted" or not case.operands:
        return case
    first, *others = case.operands
    wide = first.astype(np.float64) if first.dtype.kind not in "iu" else first
    return (
        replace(case, operands=(np.sort(wide, -1).astype(first.dtype), *others))
        if first.ndim
        else case
    )


def _distinct(op: Op) -> list[Sample]:
    """A few good samples that differ in ranks, dtypes' kinds or attributes."""
    assert op.samples is not None
    found: dict[Any, Sample] = {}
    for sample in op.samples():
        arrays = [np.asarray(a) for a in sample.operands]
        key = tuple((a.ndim, a.dtype.kind, {2: 2, 8: 8}.get(a.dtype.itemsize)) for a in arrays)
        if sample.good and all(a.size for a in arrays):
            found.setdefault((key, str(sample.attrs)), sample)
    chosen = list(found.values())
    step = max(1, len(chosen) // SAMPLES)
    return chosen[::step][:SAMPLES]


def _by_attribute(op: Op, plain: Case) -> Iterator[Case]:
    for attr in op.attrs:
        for value in _values(attr, plain.attrs.get(attr.name, attr.default)):
            yield replace(plain, attrs={**plain.attrs, attr.name: value})


def _values(attr: Attr, usual: Any) -> Iterator[Any]:
    match attr.kind:
        case "int" | "dim":
            yield from INTEGERS
            if isinstance(usual, int):
                yield from (usual - 1, usual + 1)
            yield from (1.5, None)
        case "float":
            yield from FLOATS
        case "bool":
            yield from (True, False, 2)
        case "str":
            yield from (*attr.choices, *TEXTS)
        case "dtype":
            yield from (*DTYPES, "f80", 3)
        case "ints" | "dims":
            yield from _lists(tuple(usual) if isinstance(usual, tuple | list) else ())
        case "strs":
            yield from (
                (),
                ("",),
                ("x" * 5000,),
                ("cpu:0",) * 1000,
                ("no such", "tpu:0"),
                (3,),
                "cpu:0",
            )
            yield from ((*usual, *usual), tuple(usual)[:-1], (f"cpu:{10**30}",) * len(usual))
        case "literal" | "type":
            yield from (None, 3)


def _lists(usual: tuple[int, ...]) -> Iterator[Any]:
    yield from ((), usual + usual, (*usual, 1), usual[:-1], usual[::-1], (1,) * 100_000, 7)
    for value in INTEGERS:
        yield (value,) * len(usual)
        for k in range(len(usual)):
            yield (*usual[:k], value, *usual[k + 1 :])
    for k, entry in enumerate(usual):
        yield (*usual[:k], entry + 1, *usual[k + 1 :])
        yield (*usual[:k], entry - 1, *usual[k + 1 :])


def _resized(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if not array.size or 0 in shape:
        return np.zeros(shape, array.dtype)
    return np.resize(array, shape)


def _by_extent(plain: Case) -> Iterator[Case]:
    """One extent of one operand, or every extent (and attribute) of one value, becomes 0 or 1."""
    shapes = [a.shape for a in plain.operands]
    for extent in {n for shape in shapes for n in shape}:
        for new in (0, 1):
            changed = [tuple(new if n == extent else n for n in shape) for shape in shapes]
            attrs = {k: _exchanged(v, extent, new) for k, v in plain.attrs.items()}
            operands = tuple(map(_resized, plain.operands, changed))
            yield replace(plain, operands=operands)
            yield replace(plain, operands=operands, attrs=attrs)
    for which, shape in enumerate(shapes):
        for axis in range(len(shape)):
            for new in (0, 1, shape[axis] + 1):
                resized = _resized(plain.operands[which], (*shape[:axis], new, *shape[axis + 1 :]))
                before, behind = plain.operands[:which], plain.operands[which + 1 :]
                yield replace(plain, operands=(*before, resized, *behind))
        yield replace(plain, operands=plain.operands[:which])
    yield replace(plain, operands=(*plain.operands, np.zeros(3, np.float32)))


def _exchanged(value: Any, old: int, new: int) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_exchanged(v, old, new) for v in value)
    return new if value == old and type(value) is int else value


def _by_content(plain: Case) -> Iterator[Case]:
    """Integer operands hold bad indices, floats NaN and infinities."""
    for which, array in enumerate(plain.operands):
        kind = dtype(array.dtype)
        fills: tuple[Any, ...] = ()
        if kind.is_integer:
            info = np.iinfo(array.dtype)
            fills = (info.min, info.max, max(info.min, -1), *(min(info.max, n) for n in (0, 1, 9)))
        elif kind.kind == "f":
            fills = (np.nan, np.inf, -np.inf, -0.0)
        for value in fills:
            operands = list(plain.operands)
            operands[which] = np.full(array.shape, value, array.dtype)
            yield replace(plain, operands=tuple(operands))


SAMPLED = sorted(name for name, op in OPS.items() if op.samples is not None)


def cases_of(names: Iterable[str]) -> list[Case]:
    """The hostile uses of ops that have samples."""
    return [case for name in names for case in cases(OPS[name])]


# ------------------------------------------------------------------------------------ one case


def typed(case: Case) -> AnyType | None:
    """The type of the result; None if the type rule refuses the case."""
    op = OPS[case.op]
    try:
        return op.result_type(tuple(map(literal_type, case.operands)), op.coerce(case.attrs))
    except GraphError:
        return None


def attempt(case: Case) -> str | None:
    """None if the op is refused with a GraphError, or gives what its reference gives."""
    op, result = OPS[case.op], typed(case)
    if result is None:
        return None
    attrs = op.coerce(case.attrs)
    sizes = [k.nbytes for k in (*map(literal_type, case.operands), *leaves(result))]
    expected = _expected(op, case, result) if sum(sizes) < LARGE else None
    compiled = gc.compile(lambda operands: emit(op, *operands, **attrs.values_dict))
    for side in ("behind", "before"):
        try:
            made = compiled([guarded(a, side) for a in case.operands])
        except GraphError:
            if expected is not None and all(map(_finite, case.operands)):
                return "refused when it runs, but the reference has a result"
            continue
        if expected is None and not all(map(_finite, case.operands)):
            continue  # of infinite matrices one gives NaN, the other gives up
        if expected is None:
            if any(kind.nbytes for kind in leaves(result)):  # of no elements, no index is read
                return "it has a result, but the reference has none"
            continue
        trouble = _difference(case, made, expected, result)
        if trouble:
            return f"{trouble} (the closed page lies {side})"
    return None


def _expected(op: Op, case: Case, result: Any) -> list[np.ndarray] | None:
    """The reference's results; None where it has none."""
    with np.errstate(all="ignore"):
        try:
            made = op.reference(*case.operands, **op.coerce(case.attrs).values_dict)
        except (GraphError, IndexError, np.linalg.LinAlgError):
            return None
        parts = made if isinstance(result, TupleType) else (made,)
        return [np.asarray(p, k.dtype.numpy) for p, k in zip(parts, tensors(result), strict=True)]


def _finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.complex128)).all())


def _difference(case: Case, made: Any, expected: list[np.ndarray], result: Any) -> str | None:
    parts = made if isinstance(result, TupleType) else (made,)
    for part, wanted, kind in zip(parts, expected, tensors(result), strict=True):
        got = np.asarray(part)
        if got.shape != wanted.shape or got.shape != kind.shape or got.dtype != wanted.dtype:
            return f"{got.dtype}{list(got.shape)} for {kind}, reference {list(wanted.shape)}"
        if not _same(OPS[case.op], got, wanted, RTOL.get(kind.dtype.name, 0) * case.tolerance):
            return f"got {got.reshape(-1)[:9]}, expected {wanted.reshape(-1)[:9]}"
    return None


def _same(op: Op, got: np.ndarray, wanted: np.ndarray, tolerance: float) -> bool:
    """Equal but for rounding; what is summed in another order may be NaN for an infinity."""
    if not tolerance:
        return np.array_equal(got, wanted)
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    got, wanted = got.astype(wide), wanted.astype(wide)
    sums = not isinstance(op.lower, Scalar | Compute)
    known = np.isfinite(got) | np.isfinite(wanted) if sums else np.ones(got.shape, bool)
    scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)) if sums else 1.0
    return np.allclose(got[known], wanted[known], tolerance, tolerance * scale, equal_nan=True)


# ------------------------------------------------------------------------------------ processes


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE / 2**20


def limit_memory(more: int = MEMORY) -> None:
    """This process gets no more address space than it has, and `more`."""
    with open("/proc/self/statm") as file:
        have = int(file.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (have + more, have + more))


def apart(work: Any, seconds: int = 60) -> tuple[str | None, float, float]:
    """(what `work()` returns or how its process ended, seconds of CPUs, MB more than this process
    has) in a child process."""
    read, write = os.pipe()
    before = _resident()
    child = os.fork()
    if not child:
        os.close(read)
        signal.alarm(seconds)
        limit_memory()
        try:
            said = work() or ""
        except BaseException:  # noqa: BLE001  (whatever it was, it is reported)
            said = traceback.format_exc()[-400:]
        os.write(write, said.encode(errors="replace"))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status, used = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        said = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return said or None, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024 - before


def sampled(count: int, seed: int = 0) -> int:
    """Some cases and texts in this process, whose address space is limited."""
    limit_memory()
    rng = random.Random(seed)
    possible = cases_of(rng.sample(SAMPLED, min(4 * count, len(SAMPLED))))
    texts = list(hostile_texts())
    chosen = rng.sample(possible, min(10 * count, len(possible)))
    accepted = [case for case in chosen if typed(case) is not None][:count]
    texts = rng.sample(texts, min(count, len(texts)))
    found = [(str(case), attempt(case)) for case in accepted]
    found += [(text, attempt_text(text)) for text in texts]
    wrong = [pair for pair in found if pair[1] is not None]
    print(*wrong, f"{len(wrong)} of {len(found)} wrong", sep="\n")
    return int(bool(wrong))


def everything(share: int, names: list[str]) -> int:
    """One in `share` cases of the ops of these names (of all), and all texts, one by one."""
    gc.compile(lambda x: np.sort(x + 1))(np.zeros(200))  # compilers are imported before forks
    chosen = cases_of(name for name in SAMPLED if not names or name in names)
    chosen = random.Random(0).sample(chosen, len(chosen) // share)
    slow = [str(case) for case in chosen if _seconds_to_type(case) > 0.1]
    accepted = [case for case in chosen if typed(case) is not None]
    print(f"{len(chosen)} cases, {len(accepted)} accepted by type rules, slow: {slow}", flush=True)
    work: list[tuple[str, Callable[[], str | None]]]
    work = [(str(case), partial(attempt, case)) for case in accepted]
    work += [(text, partial(attempt_text, text)) for text in hostile_texts() if not names]
    figures: list[tuple[float, float, str]] = []
    wrong = len(slow)
    for text, run in work:
        said, seconds, memory = apart(run)
        figures.append((seconds, memory, text))
        if said or seconds > 1 or memory > 200:
            wrong += 1
            print(f"--- {text}: {seconds:.2f} s, {memory:.0f} MB\n{said or ''}", flush=True)
    for largest in (sorted(figures)[-5:], sorted(figures, key=lambda f: f[1])[-5:]):
        for seconds, memory, text in reversed(largest):
            print(f"{seconds:6.2f} s {memory:6.0f} MB  {text}")
    print(f"{wrong} of {len(work)} wrong")
    return int(wrong > 0)


def _seconds_to_type(case: Case) -> float:
    begin = time.thread_time()
    typed(case)
    return time.thread_time() - begin


if __name__ == "__main__":
    if sys.argv[1:2] == ["sample"]:
        sys.exit(sampled(*map(int, sys.argv[2:])))
    numbers = [int(n) for n in sys.argv[1:] if n.isdigit()]
    sys.exit(everything(numbers[0] if numbers else 1, [n for n in sys.argv[1:] if not n.isdigit()]))
