"""Texts that LLVM or Numba makes object code of, several at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from graphc.base.record import record
from graphc.codegen import gemm as contract
from graphc.codegen.llvm.parallel_compile import together
from graphc.codegen.llvm.target import Target, optimise_and_object
from graphc.codegen.runtime.support import kept_object, support_object
from graphc.codegen.tuning import tuned
from graphc.seams.llvmlite import settled

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_CALLED = re.compile(r"call \w+ @(graphc_(?:contract|core)_\w+)\(")  # of other objects


@record(frozen=True)
class Piece:
    """One thing to compile: its symbol, its cache key and how to make object code of it.

    `make` compiles it through Numba, for this machine, to a module that defines the symbol.
    """

    symbol: str
    key: str
    text: str  # LLVM IR, or "" when `make` compiles it
    make: Callable[[], llvm.ModuleRef] | None = None
    core: contract.Module | None = None
    is_kept: bool = True  # in the cache


def objects_of(
    pieces: Iterable[Piece], target: Target, opt: int, threads: int
) -> tuple[bytes, list[tuple[bytes, list[Piece]]]]:
    """The support object, and the object code of the pieces with what each object defines.

    LLVM works in several threads, on the long jobs first; what lies in which object does not depend
    on how many. Numba's compiler runs in this one only.
    """
    pieces = list(pieces)
    plain = [piece for piece in pieces if piece.make is None]
    groups = grouped(plain)

    def job(group: list[Piece]) -> Callable[[], bytes]:
        texts, core = [piece.text for piece in group], group[0].core
        if core is not None:
            return lambda: contract.compile_core(texts, core.inner, target)
        return lambda: optimise_and_object(texts, target, opt)

    with settled():
        support = kept_object(target)
        jobs = [*map(job, groups)]
        if support is None:
            jobs.append(lambda: support_object(target))
        codes = together(jobs, threads)
    made = list(zip(codes, groups))
    return support or codes[-1], made + [(_by_numba(p), [p]) for p in pieces if p.make is not None]


def _by_numba(piece: Piece) -> bytes:
    from graphc.codegen.numba import route as numba_route

    assert piece.make is not None
    return numba_route.emitted(piece.make())


def grouped(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """What goes into one object each, the longest first.

    A later process may want one kernel of an object: all of them must need the same others. LLVM
    takes 1.5 ms to start on an object: much text makes two for each thread, not one for each piece.
    """
    longest = max(tuned.object_text, size(pieces) // (2 * tuned.compile_threads))
    alike: dict[object, list[list[Piece]]] = {}
    for piece in pieces:
        inner = piece.core.inner if piece.core else None
        groups = alike.setdefault((inner, frozenset(_CALLED.findall(piece.text))), [[]])
        if groups[-1] and size(groups[-1]) + len(piece.text) > longest:
            groups.append([])
        groups[-1].append(piece)
    return sorted((g for groups in alike.values() for g in groups), key=size, reverse=True)


def size(group: Iterable[Piece]) -> int:
    return sum(len(piece.text) for piece in group)
