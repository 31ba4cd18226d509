"""Turns object code into addresses of functions.

x86-64 ELF objects are linked by `graphc.runtime.load.elf`; anything else goes through LLVM's JIT
linker. Each object is linked once, into a library of its own: equal symbol names of different
objects never meet.  Symbols that an object leaves open are looked for in the process (libc and
libm); what is not there is an error that names it.  The code of kernels goes with the last program
that was linked with it: no run of it is in flight then, and workers are inside only during one.
The code of the workers themselves is kept for ever (see `Support`), and so is what LLVM links.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

from graphc.errors import GraphError
from graphc.forks import fork_safe_lock
from graphc.runtime.devices.device import machine
from graphc.runtime.load import elf
from graphc.seams import cpython, lapack

_lock = fork_safe_lock()
_linked: WeakValueDictionary[str, Linked] = WeakValueDictionary()  # the last copy of each object
_numbers = itertools.count()


class Linked(dict[str, int]):
    """One linked copy of an object: the address of each symbol, as long as this is kept.

    `used` are the given imports that it calls, 0 for one that it can do without and was not given;
    whoever gave them keeps what they belong to.
    """

    used: Mapping[str, int]
    memory: object

    @classmethod
    def made(
        cls, addresses: Mapping[str, int], used: Mapping[str, int], memory: object = None
    ) -> Linked:
        found = cls(addresses)
        found.used, found.memory = used, memory
        return found


def link(code: bytes, symbols: Iterable[str], imports: Mapping[str, int] | None = None) -> Linked:
    """The addresses of `symbols` and others, all defined by the object `code`.

    `imports` gives addresses for symbols that the object leaves open.  Raises GraphError when the
    object cannot be linked, naming the symbols that are missing.
    """
    key = hashlib.sha256(code).hexdigest()
    wanted = set(symbols)
    given = imports or {}
    with _lock:
        copy = _linked.get(key)
        if copy is not None and wanted <= copy.keys() and _fits(copy, given):
            return copy
        made = _linked[key] = _link(code, f"{key}.{next(_numbers)}", wanted, given)
        return made


def _fits(copy: Linked, given: Mapping[str, int]) -> bool:
    """Whether a copy was linked with what is given now."""
    return all(given.get(symbol, 0) == address for symbol, address in copy.used.items())


def _link(code: bytes, name: str, symbols: set[str], imports: Mapping[str, int]) -> Linked:
    try:
        source = elf.parse(code)
        resolve = _resolver(source, imports)
        absent = symbols - source.defined
        if absent:
            raise GraphError(f"object code does not define {', '.join(sorted(absent))}")
        used = {symbol: imports[symbol] for symbol in source.imports if symbol in imports}
        used |= dict.fromkeys(source.optional - used.keys(), 0)
        if not _direct():
            return Linked.made(_link_with_llvm(code, name, symbols, used), used)
        addresses, memory = elf.load(source, resolve)
        return Linked.made(addresses, used, memory)
    except elf.Unsupported:
        return Linked.made(_link_with_llvm(code, name, symbols, imports), dict(imports))
    except elf.Damaged as error:
        raise GraphError(f"object code is damaged: {error}") from None
    except OSError as error:
        raise GraphError(f"object code cannot be loaded: {error.strerror}") from None


@cache
def _direct() -> bool:
    """Whether this process can run what `elf` links; GRAPHC_LINKER=llvm says no."""
    known = sys.platform == "linux" and machine() == "x86_64"
    return known and os.environ.get("GRAPHC_LINKER") != "llvm"


def _resolver(source: elf.Object, imports: Mapping[str, int]) -> Callable[[str], int]:
    found = {name: imports.get(name) or process_symbol(name) for name in source.imports}
    missing = [n for n, address in found.items() if not address and n not in source.optional]
    if missing:
        names = ", ".join(missing)
        raise GraphError(f"object code needs functions that do not exist here: {names}")
    return found.__getitem__


@cache
def _libraries() -> list[ctypes.CDLL]:
    libraries = [ctypes.CDLL(None), cpython.interpreter()]
    if sys.platform == "linux":
        libraries.append(ctypes.CDLL("libm.so.6"))
    return libraries


@cache
def process_symbol(name: str) -> int:
    """The address of a function of libc, libm, the interpreter or LAPACK; 0 if there is none."""
    if name.startswith(lapack.PREFIX):
        return lapack.address(name.removeprefix(lapack.PREFIX))
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


@cache
def _jit() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # JITLink maps an object in one piece. RuntimeDyld takes memory for each section, and ends the
    # process where the system has none for data within 2 GiB of the code.
    jit = llvm.create_lljit_compiler(suppress_errors=True, use_jit_link=True)
    cpython.keep_for_ever(jit)
    return jit


def _link_with_llvm(
    code: bytes, name: str, symbols: Iterable[str], imports: Mapping[str, int]
) -> dict[str, int]:
    from llvmlite.binding import JITLibraryBuilder

    builder = JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol, address in {**lapack.addresses(code), **imports}.items():
        builder.import_symbol(symbol, address)
    for symbol in symbols:
        builder.export_symbol(symbol)
    try:
        tracker = builder.link(_jit(), name)
    except RuntimeError as error:
        raise GraphError(f"object code cannot be linked: {str(error).strip()}") from None
    cpython.keep_for_ever(tracker)
    return {symbol: tracker[symbol] for symbol in symbols}
