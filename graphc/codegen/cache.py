"""The object-code cache: kernels compiled once per user and machine type.

    ROOT/                     $GRAPHC_CACHE_DIR, or the user's cache directory
      keys/<key>              one line: the name of the pack that defines the kernel
      packs/<name>            one object file that defines one or more kernels
      models/                 whole programs of model files (graphc.formats.model_cache)

A key is a digest of everything the object code depends on (`digest`), a pack's name is the SHA-256
of its content.  A pack lists its keys, so one read serves every kernel that was compiled in the
same batch. Files appear by renaming, so that concurrent processes see whole files; a file that is
cut short or altered does not match its digest and counts as absent.  Object code is trusted like a
program, so the directory must belong to the user and nobody else may write to it.  Nothing here
ever raises: a cache that cannot be used warns once and the kernels are compiled.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from graphc.base.record import record
from graphc.codegen.tuning import tuned
from graphc.forks import fork_safe_lock
from graphc.runtime.files.files import cache_folder, is_private, new_file, read_ordinary

FORMAT = 2  # goes up whenever an object may need other symbols for the same text
_MAGIC = b"graphc-pack 1\n"
_HEAD_BYTES = 8


@record(frozen=True)
class Entry:
    """A kernel in the cache: object code and the symbol that is its entry point."""

    code: bytes
    symbol: str


@record(frozen=True)
class Pack:
    """What `graphc cache ls` shows of one file."""

    name: str
    symbols: tuple[str, ...]
    nbytes: int
    modified: float


def digest(*parts: object) -> str:
    """A digest of everything that object code depends on, as text."""
    made = hashlib.sha256()
    for part in (FORMAT, *parts):
        data = str(part).encode()
        made.update(b"%d:" % len(data))
        made.update(data)
    return made.hexdigest()


def default() -> Cache:
    """The cache of this process's environment (GRAPHC_CACHE_DIR is read at every call)."""
    return _at(cache_folder())


@lru_cache(maxsize=8)
def _at(root: Path) -> Cache:
    return Cache(root)


class Cache:
    """One cache directory, with what this process has used of it in memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._memory: dict[str, Entry] = {}
        self._lock = fork_safe_lock()
        self._kept = 0  # bytes in memory
        self._warned = False
        self._usable: bool | None = None

    def get(self, keys: Iterable[str]) -> dict[str, Entry]:
        """The entries of those keys that are present."""
        wanted = list(dict.fromkeys(keys))
        self._forget()
        for key in wanted:
            if key not in self._memory and self._ready():
                self._memory.update(self._read(key))
        memory = self._memory  # another thread may forget it
        return {key: memory[key] for key in wanted if key in memory}

    def _forget(self) -> None:
        """Drop what is kept in memory once it is a lot: the files are there, or LLVM is."""
        if self._kept > tuned.kept_code:
            self._memory, self._kept = {}, 0

    def put(self, code: bytes, symbols: Mapping[str, str]) -> None:
        """Keep object code under the keys of `symbols` (key -> symbol that the code defines)."""
        self._memory.update({key: Entry(code, symbol) for key, symbol in symbols.items()})
        self._kept += len(code)
        if not self._ready():
            return
        head = json.dumps(dict(symbols), sort_keys=True).encode()
        data = _MAGIC + len(head).to_bytes(_HEAD_BYTES, "little") + head + code
        name = hashlib.sha256(data).hexdigest()
        try:
            self._write(self._packs / name, data)
            for key in symbols:
                self._write(self._keys / key, name.encode())
        except OSError as error:
            self._warn(f"cannot write to {self.root}: {error.strerror}")

    def entries(self) -> list[Pack]:
        """Every sound pack on disk, oldest first."""
        found = [pack for path in self._files(self._packs) if (pack := _describe(path))]
        return sorted(found, key=lambda pack: (pack.modified, pack.name))

    def size(self) -> int:
        """Bytes on disk."""
        return sum(_size(path) for path in self._all_files())

    def clear(self) -> int:
        """Remove every file of the cache; returns the number of bytes freed."""
        freed = 0
        self._memory = {}
        for path in self._all_files():
            size = _size(path)
            try:
                path.unlink()
            except OSError:
                continue
            freed += size
        return freed

    @property
    def _packs(self) -> Path:
        return self.root / "packs"

    @property
    def _keys(self) -> Path:
        return self.root / "keys"

    def _all_files(self) -> Iterator[Path]:
        yield from self._files(self._keys)
        yield from self._files(self._packs)
        yield from self._files(self.root / "models")

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        try:
            return [path for path in folder.iterdir() if path.is_file()]
        except OSError:
            return []

    def _ready(self) -> bool:
        """Whether the directory exists and only the user can write to it; checked once."""
        if self._usable is None:
            with self._lock:
                self._usable = self._prepare()
        return self._usable

    def _prepare(self) -> bool:
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.root, self._packs, self._keys):
                folder.mkdir(mode=0o700, exist_ok=True)
                if not is_private(folder):
                    self._warn(f"{folder} is not the user's own or others can write to it")
                    return False
        except OSError as error:
            self._warn(f"{self.root} cannot be used: {error.strerror}")
            return False
        return True

    def _read(self, key: str) -> dict[str, Entry]:
        """Every entry of the pack that holds `key`; empty when there is none or it is damaged."""
        try:
            name = read_ordinary(self._keys / key)
            data = read_ordinary(self._packs / name.decode())
        except (OSError, ValueError):
            return {}
        if hashlib.sha256(data).hexdigest().encode() != name:
            return {}
        symbols, code = _unpack(data)
        self._kept += len(code)
        return {held: Entry(code, symbol) for held, symbol in symbols.items()}

    def _write(self, path: Path, data: bytes) -> None:
        with new_file(path) as (file, temporary):
            file.write(data)
            file.flush()
            temporary.replace(path)

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"graphc's cache is off: {reason}", RuntimeWarning, stacklevel=4)


def _unpack(data: bytes) -> tuple[dict[str, str], bytes]:
    """Symbols by key, and the object code; empty for data that is no pack of this format."""
    start = len(_MAGIC) + _HEAD_BYTES
    if not data.startswith(_MAGIC) or len(data) < start:
        return {}, b""
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    try:
        symbols = json.loads(data[start:end])
    except ValueError:
        return {}, b""
    whole = isinstance(symbols, dict) and all(isinstance(s, str) for s in symbols.values())
    return (symbols, data[end:]) if whole else ({}, b"")


def _describe(path: Path) -> Pack | None:
    try:
        data = path.read_bytes()
        modified = path.stat().st_mtime
    except OSError:
        return None
    if hashlib.sha256(data).hexdigest() != path.name:
        return None
    symbols, _ = _unpack(data)
    return Pack(path.name, tuple(sorted(symbols.values())), len(data), modified)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
