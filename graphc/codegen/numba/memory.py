"""Numba's reference-counted blocks over malloc.

Code that allocates arrays calls Numba's C runtime, which lives in the Numba package.  An object
that must load without Numba carries these definitions instead.  A block is its header, then data.
The data of a list is an allocation of its own, which grows; the block's destructor frees it.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    I64,
    PTR,
    VOID,
    Extern,
    Int32,
    Module,
    Native,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    native,
)
from graphc.seams.numba_objects import BlockWords

_malloc = Extern("malloc", PTR, I64)
_realloc = Extern("realloc", PTR, PTR, I64)
_free = Extern("free", VOID, PTR)


@native(PTR)
def new_block(f: Writer, size: Number, align: Number) -> None:
    """A block with aligned data behind its header, or null."""
    made = _malloc(f, size + align + BlockWords.nbytes)
    with f.when(made.is_some):
        block, last = made.to(BlockWords), align - 1
        end = (made + BlockWords.nbytes).cast("ptrtoint", I64) + last
        block.references, block.size = 1, size
        block.destructor = block.argument = block.allocator = f.null()
        block.data = (end & ~last).cast("inttoptr", PTR)
    f.give(made)


def _plain(symbol: str) -> Native:
    @native(PTR, is_public=True, symbol=symbol)
    def allocate(f: Writer, size: Number) -> None:
        f.give(new_block(f, size, 16))

    return allocate


def _aligned(symbol: str) -> Native:
    @native(PTR, is_public=True, symbol=symbol)
    def allocate(f: Writer, size: Number, align: Int32) -> None:
        f.give(new_block(f, size, align.cast("zext", I64)))

    return allocate


@native(is_public=True, symbol="NRT_MemInfo_call_dtor")
def release_block(f: Writer, block: Struct[BlockWords]) -> None:
    destructor = block.destructor
    with f.when(destructor.is_some):
        f.invoke(VOID, destructor, block.data, block.size, block.argument)
    _free(f, block)


@native(PTR, is_public=True, symbol="NRT_Allocate")
def allocate(f: Writer, size: Number) -> None:
    f.give(_malloc(f, size))


@native(is_public=True, symbol="NRT_Free")
def free(f: Writer, memory: Pointer) -> None:
    _free(f, memory)


# ------------------------------------------------------------------------------------ lists


@native()
def free_elements(f: Writer, data: Pointer, size: Number, elements: Pointer) -> None:
    """The destructor of a list, after that of its elements."""
    with f.when(elements.is_some):
        f.invoke(VOID, elements, data)
    _free(f, data)


def hold(block: Struct[BlockWords], data: Value, size: Value) -> None:
    block.data, block.size = data, size


@native(PTR, is_public=True, symbol="NRT_MemInfo_new_varsize_dtor")
def new_list_of(f: Writer, size: Number, elements: Pointer) -> None:
    made = new_block(f, 0, 16)
    with f.when(made.is_some):
        block = made.to(BlockWords)
        block.destructor, block.argument = free_elements.address(f), elements
        allocate_elements(f, made, size)
    f.give(made)


@native(PTR, is_public=True, symbol="NRT_MemInfo_new_varsize")
def new_list(f: Writer, size: Number) -> None:
    f.give(new_list_of(f, size, f.null()))


@native(PTR, is_public=True, symbol="NRT_MemInfo_varsize_alloc")
def allocate_elements(f: Writer, block: Struct[BlockWords], size: Number) -> None:
    data = _malloc(f, size)
    hold(block, data, size)
    f.give(data)


@native(PTR, is_public=True, symbol="NRT_MemInfo_varsize_realloc")
def grow_elements(f: Writer, block: Struct[BlockWords], size: Number) -> None:
    data = _realloc(f, block.data, size)
    with f.when(data.is_some):
        hold(block, data, size)
    f.give(data)


@native(is_public=True, symbol="NRT_MemInfo_varsize_free")
def forget_elements(f: Writer, block: Struct[BlockWords], data: Pointer) -> None:
    _free(f, data)
    with f.when(block.data == data):
        block.data = f.null()


_FUNCTIONS = (
    _plain("NRT_MemInfo_alloc"),
    _plain("NRT_MemInfo_alloc_safe"),
    _aligned("NRT_MemInfo_alloc_aligned"),
    _aligned("NRT_MemInfo_alloc_safe_aligned"),
    release_block,
    allocate,
    free,
    new_list_of,
    new_list,
    allocate_elements,
    grow_elements,
    forget_elements,
)
PROVIDED = frozenset(function.symbol for function in _FUNCTIONS)


def memory_ir(triple: str) -> str:
    """Definitions of every function in `PROVIDED`."""
    return Module(triple).text(_FUNCTIONS)
