"""A linker for the object code graphc makes: x86-64 ELF relocatable files, loaded without LLVM.

Loading libllvmlite costs a process 30 ms and tens of megabytes; objects that are only to be run
need none of it.  One object becomes one anonymous mapping:

    code pages          r-x   executable sections, then a jump stub per external function
    read-only pages     r--   constants, then the table of external addresses (GOT)
    writable pages      rw-   zeroed and initialised data

Positions are relative or go through the GOT, so stubs are only needed to reach libc and libm.  What
this linker does not know (other machines, thread-local data, constructors, unusual relocations)
raises `Unsupported`; the caller then asks LLVM.  `parse` reads objects of any 64-bit machine: what
one defines and leaves open is asked of those that LLVM links, too.  Format: System V ABI, AMD64
supplement, chapter 4.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterable
from dataclasses import field

from graphc.base.record import record

_WRITE, _ALLOC, _CODE, _THREAD_LOCAL = 1, 2, 4, 0x400
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _INIT_ARRAY, _UNWIND = 1, 2, 4, 8, 14, 0x70000001
_UNDEFINED, _SPECIAL = 0, 0xFF00
_WEAK, _X86_64 = 2, 62
_ABS64, _PC32, _PLT32, _GOTPCREL, _PC64, _GOTPCRELX, _REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_STUB = b"\xff\x25"  # jmp [rip + offset]
_STUB_BYTES = 8
_MOST_BYTES = 1 << 30  # well inside the reach of 32-bit displacements


class Unsupported(Exception):
    """The object needs something this linker does not do."""


class Damaged(Exception):
    """The bytes are no object file."""


@record
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    address: int = 0


@record(frozen=True)
class _Symbol:
    name: str
    section: int
    value: int
    weak: bool = False


@record
class Object:
    """A parsed object file."""

    code: bytes
    machine: int
    sections: list[_Section]
    symbols: list[_Symbol]
    relocations: list[tuple[_Section, int, int, int, int]] = field(default_factory=list)

    @property
    def defined(self) -> set[str]:
        """Names of the symbols the object defines."""
        return {s.name for s in self.symbols if s.name and 0 < s.section < _SPECIAL}

    @property
    def imports(self) -> list[str]:
        """Names of the symbols its loaded sections need from elsewhere, sorted."""
        used = {relocation[3] for relocation in self.relocations}
        names = {self.symbols[i].name for i in used if self.symbols[i].section == _UNDEFINED}
        return sorted(names)

    @property
    def optional(self) -> set[str]:
        """Names of the imports that are null where nobody defines them."""
        return {s.name for s in self.symbols if s.weak and s.section == _UNDEFINED}


def parse(code: bytes) -> Object:
    """Read a 64-bit ELF object; raises Unsupported for other formats and Damaged for nonsense."""
    try:
        return _parse(code)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise Damaged(str(error)) from None


def _parse(code: bytes) -> Object:
    if code[:6] != b"\x7fELF\x02\x01":
        raise Unsupported("not a 64-bit little-endian ELF file")
    kind, machine = struct.unpack_from("<HH", code, 16)
    if kind != 1:
        raise Unsupported(f"ELF type {kind}")
    (table,) = struct.unpack_from("<Q", code, 40)
    entry, count, names = struct.unpack_from("<HHH", code, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", code, table + i * entry) for i in range(count)]
    sections = [_Section("", r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8])) for r in raw]
    for section, head in zip(sections, raw, strict=True):
        section.name = _text(code, sections[names].offset + head[0])
        if section.kind != _NOBITS and section.offset + section.size > len(code):
            raise Damaged(f"section {section.name!r} ends outside the file")
        if section.flags & _THREAD_LOCAL or section.kind == _INIT_ARRAY:
            raise Unsupported(f"section {section.name!r}")
    tables = [section for section in sections if section.kind == _SYMTAB]
    symbols = _read_symbols(code, sections, tables[0]) if tables else []
    result = Object(code, machine, sections, symbols)
    for section in sections:
        if section.kind == _RELA and _is_loaded(sections[section.info]):
            result.relocations += _read_relocations(code, section, sections[section.info])
    if any(relocation[3] >= len(symbols) for relocation in result.relocations):
        raise Damaged("a relocation of a symbol that does not exist")
    return result


def _text(code: bytes, start: int) -> str:
    return code[start : code.index(b"\0", start)].decode("utf-8", "replace")


def _read_symbols(code: bytes, sections: list[_Section], table: _Section) -> list[_Symbol]:
    strings = sections[table.link].offset
    data = code[table.offset : table.offset + table.size]
    result = []
    for name, info, _other, section, value, _size in struct.iter_unpack("<IBBHQQ", data):
        if _UNDEFINED < section < _SPECIAL and section >= len(sections):
            raise Damaged(f"a symbol in section {section} of {len(sections)}")
        text = _text(code, strings + name) if name else ""
        result.append(_Symbol(text, section, value, info >> 4 == _WEAK))
    return result


def _read_relocations(
    code: bytes, table: _Section, target: _Section
) -> Iterable[tuple[_Section, int, int, int, int]]:
    data = code[table.offset : table.offset + table.size]
    for offset, info, addend in struct.iter_unpack("<QQq", data):
        if offset + 4 > target.size:
            raise Damaged("a relocation outside its section")
        yield target, offset, info & 0xFFFFFFFF, info >> 32, addend


def _is_loaded(section: _Section) -> bool:
    """Unwind tables are left out: no exception ever passes through generated code."""
    if section.name.startswith(".eh_frame") or section.kind == _UNWIND:
        return False
    filled = section.kind in (_PROGBITS, _NOBITS) and section.size > 0
    return filled and bool(section.flags & _ALLOC)


class _Layout:
    """Places sections, stubs and the GOT of an object in one block of pages."""

    def __init__(self, source: Object) -> None:
        loaded = [section for section in source.sections if _is_loaded(section)]
        writable = [section for section in loaded if section.flags & _WRITE]
        code = [s for s in loaded if s.flags & _CODE and not s.flags & _WRITE]
        constant = [s for s in loaded if not s.flags & (_CODE | _WRITE)]
        self.sections = loaded
        self.imports = source.imports
        self.end = 0
        self._place(code)
        self.stubs = self._reserve(_STUB_BYTES * len(self.imports), 16)
        self.code_end = self._page()
        self._place(constant)
        # Any symbol may be asked for through the GOT, not only imported ones.
        self.got = self._reserve(8 * len(source.symbols), 8)
        self.constant_end = self._page()
        self._place(writable)
        self.size = max(mmap.PAGESIZE, self._page())

    def _reserve(self, size: int, align: int) -> int:
        start = -(-self.end // align) * align
        self.end = start + size
        return start

    def _place(self, sections: list[_Section]) -> None:
        for section in sections:
            section.address = self._reserve(section.size, section.align)

    def _page(self) -> int:
        self.end = -(-self.end // mmap.PAGESIZE) * mmap.PAGESIZE
        return self.end


def load(source: Object, resolve: Callable[[str], int]) -> tuple[dict[str, int], mmap.mmap]:
    """Map and relocate an object: addresses of its symbols, and the mapping that must stay alive.

    `resolve` gives the address of an imported symbol.  Raises Unsupported, Damaged, or OSError when
    the system refuses executable pages.
    """
    if source.machine != _X86_64:
        raise Unsupported(f"code for machine {source.machine}")
    layout = _Layout(source)
    if layout.size > _MOST_BYTES:
        raise Damaged(f"sections of {layout.size} bytes")
    # Private: a forked child must not share the data of the thread pool.
    memory = mmap.mmap(-1, layout.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    anchor = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(anchor)
    for section in layout.sections:
        if section.kind == _PROGBITS:
            data = source.code[section.offset : section.offset + section.size]
            memory[section.address : section.address + section.size] = data
    stubs = {name: start + layout.stubs + _STUB_BYTES * i for i, name in enumerate(layout.imports)}
    try:
        values = _values(source, layout, memory, start, resolve)
        for relocation in source.relocations:
            _relocate(memory, start, layout, source, values, stubs, relocation)
    except (struct.error, ValueError, OverflowError) as error:
        raise Damaged(str(error)) from None
    _protect(start, layout.code_end, mmap.PROT_READ | mmap.PROT_EXEC)
    _protect(start + layout.code_end, layout.constant_end - layout.code_end, mmap.PROT_READ)
    addresses = {
        symbol.name: value
        for symbol, value in zip(source.symbols, values, strict=True)
        if symbol.name and _UNDEFINED < symbol.section < _SPECIAL
    }
    return addresses, memory


def _values(
    source: Object, layout: _Layout, memory: mmap.mmap, start: int, resolve: Callable[[str], int]
) -> list[int]:
    """The address of every symbol; also fills the GOT and the stubs."""
    wanted = set(layout.imports)
    values = []
    for index, symbol in enumerate(source.symbols):
        value = 0
        if symbol.section == _UNDEFINED and symbol.name in wanted:
            value = resolve(symbol.name)
            _write_stub(memory, layout, layout.imports.index(symbol.name), index)
        elif _UNDEFINED < symbol.section < _SPECIAL:
            value = start + source.sections[symbol.section].address + symbol.value
        struct.pack_into("<Q", memory, layout.got + 8 * index, value)
        values.append(value)
    return values


def _write_stub(memory: mmap.mmap, layout: _Layout, stub: int, symbol: int) -> None:
    place = layout.stubs + _STUB_BYTES * stub
    distance = layout.got + 8 * symbol - (place + 6)
    memory[place : place + 6] = _STUB + struct.pack("<i", distance)


def _relocate(
    memory: mmap.mmap,
    start: int,
    layout: _Layout,
    source: Object,
    values: list[int],
    stubs: dict[str, int],
    relocation: tuple[_Section, int, int, int, int],
) -> None:
    section, offset, kind, symbol, addend = relocation
    place = section.address + offset
    here = start + place
    if source.symbols[symbol].section >= _SPECIAL:
        raise Unsupported("an absolute or common symbol")
    if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
        entry = start + layout.got + 8 * symbol
        struct.pack_into("<i", memory, place, entry + addend - here)
    elif kind in (_PC32, _PLT32):
        target = stubs.get(source.symbols[symbol].name, values[symbol])
        struct.pack_into("<i", memory, place, target + addend - here)
    elif kind == _PC64:
        struct.pack_into("<q", memory, place, values[symbol] + addend - here)
    elif kind == _ABS64:
        struct.pack_into("<Q", memory, place, (values[symbol] + addend) & (1 << 64) - 1)
    else:
        raise Unsupported(f"relocation type {kind}")


def _protect(address: int, size: int, mode: int) -> None:
    if size and _libc_mprotect()(address, size, mode):
        raise OSError(ctypes.get_errno(), "the system refuses executable memory")


def _libc_mprotect() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
