"""Numba: what its functions and blocks of memory look like; nothing of it is imported to say so.

No figure: these are what a kernel that Numba has compiled is made of.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

from graphc.base.memory_layout import Address, Layout, Word


class BlockWords(Layout):
    """The header of a reference-counted block, which compiled code reads."""

    references: Word
    destructor: Address
    argument: Address  # of the destructor
    data: Address
    size: Word
    allocator: Address


@cache
def blocks_are_known() -> bool:
    """Whether compiled code reads the header as `BlockWords` has it.

    Where it does not, a custom op that allocates is refused: an object that loads without Numba
    cannot get memory from Numba's runtime.
    """
    from numba.core.runtime import nrtdynmod

    kind = getattr(nrtdynmod, "_meminfo_struct_type", None)
    found = ["ptr" if part.is_pointer else str(part) for part in getattr(kind, "elements", ())]
    kinds = [kind for _, kind in BlockWords.fields.values()]
    return len(found) == len(kinds) - 1 and found == kinds[:-1]  # compiled code allocates nothing


def intrinsic_of(value: Any) -> FunctionType | None:
    """The function that Numba's `@intrinsic` was given.

    It is a part of the key of kernels that call it; where it is not found such kernels are compiled
    in every process, and kept in no cache.
    """
    found = getattr(value, "_defn", None)
    return found if isinstance(found, FunctionType) else None
