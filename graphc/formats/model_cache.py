"""Models whose compilations are kept: a file that has not changed is not read again.

    ROOT/models/<key>.json           what the file takes and returns, and the files beside it
    ROOT/models/<key>-<shapes>.gcx   a program for arrays of these shapes; "open0" ... for many,
                                     "asks..." one whose result tells which runs next

ROOT is the folder of the object-code cache, with the same care: only the user writes to it, files
appear whole, and a damaged one counts as absent.  A key is a digest of the file's content, of the
options, the machine and the compiler itself, so nothing in the folder is ever out of date.  What
was not called for long goes where there is too much.

    gc.load(path) -> CachedModel -- shapes that are kept --> program (no compiler is imported)
                               -- anything else ---------> the model itself, imported now
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record, replace
from graphc.config import Config
from graphc.errors import GraphError, RunError
from graphc.forks import fork_safe_lock
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.open_executable import OpenExecutable
from graphc.runtime.call.phased_executable import PhasedExecutable
from graphc.runtime.devices.device import default_threads, machine
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.files.files import cache_folder, is_private, read_ordinary, write_atomically
from graphc.runtime.files.gcx_function import Loaded
from graphc.runtime.load.program import Image, numpy_dtype
from graphc.runtime.tuning import tuned
from graphc.tuning import changes_here

FORMAT = 1
VARIABLE = "GRAPHC_KEEP_MODELS"
MOST_OPEN = 6  # programs for many sizes that are looked for
Array = np.ndarray[Any, Any]
Told = tuple[str, tuple[int, ...], bytes]
Stamp = tuple[int, int, int]  # what tells that a file is another one now


# ------------------------------------------------------------------------------------ keys


def stamp_of(path: Path) -> Stamp:
    """What changes with the content of a file, unless somebody hides it."""
    return _stamp(path.stat())


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _key(content: str, suffix: str, config: Config) -> str:
    environment = {k: v for k, v in os.environ.items() if k.startswith("GRAPHC_")}
    ignored = {name: environment.pop(name, "") for name in ("GRAPHC_CACHE_DIR", VARIABLE)}
    assert len(ignored) == 2
    parts = (FORMAT, content, suffix, config, sorted(environment.items()), changes_here())
    told = repr((*parts, default_threads(), machine(), _cpu(), _compiler()))
    return hashlib.sha256(told.encode()).hexdigest()[:40]


@cache
def _cpu() -> str:
    """The CPU as the system describes it."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        lines = (line for line in text.splitlines() if "MHz" not in line)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return ""


@cache
def _compiler() -> str:
    """A digest of which files this package has, and of those that it compiles and reads with."""
    rows: list[tuple[str, Stamp]] = []
    for folder, _, _ in os.walk(Path(__file__).parents[1]):
        files = (entry for entry in os.scandir(folder) if entry.name.endswith(".py"))
        rows += [(entry.path, _stamp(entry.stat())) for entry in files]
    for package in ("llvmlite", "numba", "onnx"):
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            rows.append((found.origin, stamp_of(Path(found.origin))))
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()


def _digest(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("no ordinary file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def kept_name(arrays: Sequence[Array], answers: Sequence[Array] = (), asks: bool = False) -> str:
    """What a program for arrays like these is called, or what asks once these answers are given."""
    shapes: list[Any] = [(a.dtype.str, a.shape) for a in arrays]
    told = repr((*shapes, *map(told_by, answers)))
    return "asks" * asks + hashlib.sha256(told.encode()).hexdigest()[:16]


def told_by(answer: Array) -> Told:
    """An answer as a key."""
    return answer.dtype.str, answer.shape, answer.tobytes()


# ------------------------------------------------------------------------------------ the cache


@record(eq=False)
class ModelCache:
    """What is kept of one model: `folder` holds files whose names begin with `key`.

    `programs` is what the names of programs begin with, once it is known which files it reads.
    """

    folder: Path
    key: str
    content: str  # the digest of the model's file
    programs: str = ""

    def holding(self, beside: Mapping[str, str]) -> ModelCache:
        """The same where the files beside the model's own have these digests."""
        told = repr((self.key, sorted(beside.items())))
        return replace(self, programs=hashlib.sha256(told.encode()).hexdigest()[:40])

    def described(self) -> dict[str, Any] | None:
        """What was said of the model; None where nothing is kept of it, or no longer true."""
        try:
            told = json.loads(read_ordinary(self.folder / f"{self.key}.json"))
            kinds = {"params": list, "results": list, "beside": dict, "name": str}
            return told if all(isinstance(told[k], kind) for k, kind in kinds.items()) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def describe(
        self, params: Sequence[str], results: Sequence[str], beside: Mapping[str, str], name: str
    ) -> None:
        """Say what the model takes and returns, and the digests of files beside it."""
        told = {"params": params, "results": results, "beside": dict(beside), "name": name}
        self._write(self.folder / f"{self.key}.json", [json.dumps(told).encode()])

    def program(self, name: str) -> Executable | OpenExecutable | None:
        """A program that is kept."""
        path = self._path(name)
        try:
            os.utime(path)  # it was used now
            found = gcx_files.load(path)
        except (OSError, GraphError):  # there is none, or it is damaged
            return None
        return None if isinstance(found, PhasedExecutable) else found  # which is never kept

    def keep(self, name: str, image: Image) -> None:
        """Keep a program, unless it is large or no file can hold it."""
        parts = [*image.images]
        plain = all(not each.on_gpu and not each.variables and not each.hosts for each in parts)
        if not plain or sum(each.constants.nbytes for each in parts) * 4 > tuned.kept_models:
            return
        with suppress(GraphError):
            pieces = gcx_writer.pieces(image, gcx_writer.no_values(image))
            self._write(self._path(name), pieces)
            self._make_room()

    def keep_open(self, image: Image) -> None:
        """Keep a program for many sizes beside those that are there."""
        for k in range(MOST_OPEN):
            if not self._path(f"open{k}").exists():
                self.keep(f"open{k}", image)
                return

    def _path(self, name: str) -> Path:
        return self.folder / f"{self.programs}-{name}.gcx"

    def _write(self, path: Path, pieces: Sequence[Any]) -> None:
        with suppress(GraphError):
            write_atomically(path, pieces)

    def _make_room(self) -> None:
        """Remove programs that were not used for longest, where there are too many bytes."""
        found = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= tuned.kept_models:
                return
            with suppress(OSError):
                os.unlink(path)
                total -= size


def _model_cache(path: Path, config: Config) -> ModelCache | None:
    """Where compilations of a file are kept; None where they are not."""
    plain = config.dump is None and config.sample is None and config.costs == "static"
    host = config.backend == "llvm" and all("cpu" in name for name in config.devices)
    if not (plain and host) or os.environ.get(VARIABLE) == "0" or not tuned.kept_models:
        return None
    folder = cache_folder() / "models"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        safe = is_private(folder) and is_private(folder.parent)
        content = _digest(path)
        return ModelCache(folder, _key(content, path.suffix, config), content) if safe else None
    except OSError:
        return None


# ------------------------------------------------------------------------------------ models


def load(
    file: str | PathLike[str], options: Mapping[str, Any], importer: Callable[..., Any]
) -> Any:
    """The model of a file: what is kept of it, else what the importer makes."""
    path = Path(file)
    if not path.is_file():
        return importer(path, **options)
    before = stamp_of(path)
    models = _model_cache(path, Config.create(**options))
    if models is None:
        return importer(path, **options)
    told = models.described()
    if told is not None and _still_there(path, told["beside"]):
        models = models.holding(told["beside"])
        files = {path.name: models.content, **told["beside"]}
        whole = path.absolute()  # wherever the process is by then
        return CachedModel(models, told, lambda: _imported(whole, files, options, importer))
    model = importer(path, **options)
    with suppress(OSError):
        stamps = model.beside
        beside = {name: _digest(path.with_name(name)) for name in stamps}
        now = {name: stamp_of(path.with_name(name)) for name in stamps}
        if now == stamps and stamp_of(path) == before and model.plain:
            models.describe(model.params, model.result_names, beside, model.name)
            model.cache = models.holding(beside)
    return model


def _imported(
    path: Path, files: Mapping[str, str], options: Mapping[str, Any], importer: Callable[..., Any]
) -> Any:
    """The model that was loaded. Raises GraphError where its files are others by now."""
    model = importer(path, **options)
    if not _still_there(path, files):
        raise GraphError(f"{path} has changed since it was loaded", hint="load it again")
    return model


def _still_there(path: Path, beside: Mapping[str, str]) -> bool:
    with suppress(OSError, ValueError):
        return all(_digest(path.with_name(name)) == told for name, told in beside.items())
    return False


@record(eq=False)
class Query:
    """A program whose result tells what runs next, where that is known."""

    asks: Executable
    answers: dict[Told, Executable | Query] = field(default_factory=dict)


class CachedModel(Loaded):
    """A model of which programs are kept.  It runs those, and is the model itself for the rest."""

    _takes_none = True  # the model itself says which inputs are optional

    def __init__(
        self, models: ModelCache, told: Mapping[str, Any], importer: Callable[[], Any]
    ) -> None:
        self.name = told["name"]
        self.params = tuple(told["params"])
        self.result_names = tuple(told["results"])
        self._cache = models
        self._importer = importer
        self._imported: Any = None
        self._ready: dict[tuple[Any, ...], Executable | Query] = {}
        self._open: list[OpenExecutable] | None = None
        self._lock = fork_safe_lock()

    @property
    def whole(self) -> Any:
        """The model itself, imported if it was not yet."""
        with self._lock:
            if self._imported is None:
                self._imported = self._importer()
            return self._imported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.whole, name)

    def __reduce__(self) -> Any:
        return self.whole.__reduce__()

    def __repr__(self) -> str:
        return f"<graphc model {self.name}({', '.join(self.params)})>"

    def __call__(self, *args: Any, **feeds: Any) -> dict[str, Any]:
        """Results in a dict under the file's names."""
        values = self.arrange(args, feeds)
        executable = self._executable(values)
        if executable is None:
            made: dict[str, Any] = self.whole(*args, **feeds)
            return made
        return dict(zip(self.result_names, self._made(executable, values)))

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run on one value per parameter; one per result."""
        executable = self._executable(values)
        if executable is None:
            made: list[Any] = self.whole.run(values)
            return made
        return self._made(executable, values)

    def _made(self, executable: Executable, values: Sequence[Any]) -> list[Any]:
        """The results of a program. The model itself explains an error of the run."""
        try:
            return _listed(executable, values)
        except RunError as error:
            raise self.whole._explained(error, values) from error.__cause__

    def _executable(self, values: Sequence[Any]) -> Executable | None:
        """The program that is kept for these arrays."""
        if not all(type(v) is np.ndarray for v in values) or _is_tracing():
            return None
        key = tuple([(v.dtype, v.shape) for v in values])
        found = self._ready.get(key)
        if found is None and self._imported is None:
            with self._lock:
                found = self._kept(values)
                if found is not None:
                    if len(self._ready) >= tuned.kept_sizes:
                        self._ready.clear()
                    self._ready[key] = found
        return self._answered(found, values) if isinstance(found, Query) else found

    def _answered(self, query: Query, arrays: Sequence[Array]) -> Executable | None:
        """What is kept for the answers of queries, each of which is run."""
        answers: list[Array] = []
        found: Executable | Query | None = query
        while isinstance(found, Query):
            (answer,) = _listed(found.asks, arrays)
            answers.append(answer)
            after = found.answers.get(told_by(answer))
            if after is None:
                after = self._exact(arrays, answers)
                if after is not None and len(found.answers) < tuned.kept_sizes:
                    found.answers[told_by(answer)] = after
            found = after
        return found

    def _exact(
        self, arrays: Sequence[Array], answers: Sequence[Array]
    ) -> Executable | Query | None:
        """What is kept for these shapes and answers."""
        exact = self._cache.program(kept_name(arrays, answers))
        if isinstance(exact, Executable):
            return exact
        asks = self._cache.program(kept_name(arrays, answers, asks=True))
        return Query(asks) if isinstance(asks, Executable) else None

    def _kept(self, arrays: Sequence[Array]) -> Executable | Query | None:
        exact = self._exact(arrays, ())
        if exact is not None:
            return exact
        if self._open is None:
            kept = (self._cache.program(f"open{k}") for k in range(MOST_OPEN))
            self._open = [each for each in kept if isinstance(each, OpenExecutable)]
        for each in self._open:
            kinds = [(numpy_dtype(slot.dtype), len(slot.shape)) for slot in each.params]
            if kinds == [(a.dtype, a.ndim) for a in arrays]:
                found = each.bound(tuple(a.shape for a in arrays))
                if found is not None:
                    return found
        return None


def _listed(executable: Executable, values: Sequence[Any]) -> list[Any]:
    made = executable(*values)
    return [made] if len(executable.results) == 1 else list(made)


def _is_tracing() -> bool:
    """Whether a function is being traced: then the model is a part of it."""
    values = sys.modules.get("graphc.ops.record.value")
    return values is not None and values.current() is not None
