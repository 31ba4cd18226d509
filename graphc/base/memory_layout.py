"""What declares the layout of memory that Python and native code share.

A layout is a class of annotated fields: a `Word` or `Address` takes eight bytes, a `Half` four; a
number after it says at which byte it lies, else it follows the one before.  To Python a field is
the index of its word: `words[FrameWords.cancel]`.  Native code reads fields by name (see
`graphc.codegen.llvm.writer`).
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

Word: TypeAlias = int
Address: TypeAlias = int
Half: TypeAlias = int

_KINDS = {"Word": "i64", "Address": "ptr", "Half": "i32"}
_BYTES = {"i64": 8, "ptr": 8, "i32": 4}


class Layout:
    """A block of memory with named fields; `nbytes` is what the next one of an array is away.

    A layout may begin as another one does.
    """

    fields: ClassVar[dict[str, tuple[int, str]]]  # the byte and the kind of each
    nbytes: ClassVar[int]

    def __init_subclass__(cls, nbytes: int = 0) -> None:
        cls.fields, end = dict(getattr(cls, "fields", {})), 0
        for name, annotation in cls.__annotations__.items():
            kind = _KINDS[annotation]
            start = vars(cls).get(name, -(-end // _BYTES[kind]) * _BYTES[kind])
            end = start + _BYTES[kind]
            cls.fields[name] = start, kind
            setattr(cls, name, start // 8)
        cls.nbytes = nbytes or end
