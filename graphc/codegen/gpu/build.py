"""The kernels of a program for GPUs: what is new is compiled as one module, the rest is cached.

launch -> key -> cubin and PTX (cache, or Numba, NVVM and nvJitLink for all misses) -> Image
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cache as cached
from importlib import util
from pathlib import Path
from typing import Any

from graphc.base.record import record, replace
from graphc.codegen import cache
from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import Chip, chip_of
from graphc.codegen.gpu.compile import compile_ptx, pointed_dtype
from graphc.codegen.gpu.launch import Launch
from graphc.config import Config
from graphc.errors import GraphError
from graphc.runtime.load.program import Image
from graphc.tuning import changes

_LENGTH_BYTES = 8
_DEVICE_MODULES = re.compile(
    r"^from (graphc\.(?:gpu|ops\.\w+\.\w+_cuda|codegen\.gpu\.\w+)) import", re.MULTILINE
)


@record
class CudaCompiled:
    """What a `CudaCompiler` made: for each module its cubin, its PTX and the symbols wanted."""

    chip: Chip
    launches: dict[str, Launch] = field(default_factory=dict)  # by symbol
    modules: dict[bytes, list[str]] = field(default_factory=dict)  # packed module -> symbols
    compiled: int = 0
    cached: int = 0
    seconds: float = 0.0


class CudaCompiler:
    """Collects the kernels of all launches, then gets their code from the cache or compiles it."""

    def __init__(self, config: Config) -> None:
        self.result = CudaCompiled(chip_of(config.target))

    def need(self, specs: Iterable[Any]) -> None:
        """Nothing that kernels share has to be known before."""

    def launch(self, launch: Launch) -> str:
        """The symbol of the kernel that a launch runs."""
        parts: list[object] = [launch.text, launch.threads, launch.resident, launch.exact]
        parts += [len(launch.params), launch.shared, launch.twin and launch.twin.text]
        parts += [dtype.name for dtype, _ in launch.buffers]
        if self.result.chip.simulated:  # what it is given there are arrays, which have an end
            parts += [count for _, count in launch.buffers]
        symbol = f"g{cache.digest(*parts)[:24]}"
        self.result.launches.setdefault(symbol, launch)
        return symbol

    def finish(self) -> CudaCompiled:
        """Code for every kernel. Raises GraphError for one that cannot be compiled."""
        started = time.perf_counter()
        if self.result.chip.simulated:
            self._simulate()
        else:
            self._compile()
        self.result.seconds = time.perf_counter() - started
        return self.result

    def _simulate(self) -> None:
        """Kernels run in this process, as Python functions."""
        from graphc.runtime.cuda.simulated_driver import functions

        for symbol, launch in self.result.launches.items():
            if symbol not in functions:
                buffers = [(pointed_dtype(d).name, count) for d, count in launch.buffers]
                functions[symbol] = launch.make(), tuple(buffers)
                self.result.compiled += 1

    def _compile(self) -> None:
        made, launches = self.result, self.result.launches
        keys = {self._key(symbol): symbol for symbol in launches}
        store = cache.default()
        found = store.get(keys)
        missing = {key: symbol for key, symbol in keys.items() if key not in found}
        kinds: dict[tuple[bool, bool], dict[str, str]] = {}
        for key, symbol in missing.items():
            kinds.setdefault(_kind(launches[symbol]), {})[key] = symbol
        for some in kinds.values():
            new = {symbol: launches[symbol] for symbol in some.values()}
            for symbols, code in _modules(new, made.chip):
                store.put(code, {key: name for key, name in some.items() if name in symbols})
                made.modules[code] = symbols
        for entry in found.values():
            made.modules.setdefault(entry.code, []).append(entry.symbol)
        made.compiled, made.cached = len(missing), len(found)

    def _key(self, symbol: str) -> str:
        """A symbol stands for the source and the signature of a kernel."""
        launch = self.result.launches[symbol]
        functions = _device_code(launch.text + (launch.twin.text if launch.twin else ""))
        return cache.digest(symbol, self.result.chip.name, toolkit.versions(), functions, changes())


def _kind(launch: Launch) -> tuple[bool, bool]:
    """What is alike in all kernels of a module."""
    return launch.exact, launch.twin is not None


def _device_code(text: str) -> str:
    """A digest of the modules of device functions that a source imports, and those import."""
    known: dict[str, str] = {}
    pending = _DEVICE_MODULES.findall(text)
    while pending:
        module = pending.pop()
        if module not in known:
            known[module] = _source(module)
            pending += _DEVICE_MODULES.findall(known[module])
    return cache.digest(*(known[module] for module in sorted(known)))


@cached
def _source(module: str) -> str:
    """The text of a module or package, read without importing: that needs Numba."""
    found = util.find_spec(module)
    assert found is not None
    path = Path(str(found.origin))
    files = sorted(path.parent.glob("*.py")) if found.submodule_search_locations else [path]
    return "\n".join(file.read_text() for file in files)


def _modules(launches: dict[str, Launch], chip: Chip) -> Iterator[tuple[list[str], bytes]]:
    """The symbols and the code of modules of all kernels: of one.

    Where that fails each kernel has its own: an array of shared memory that several kernels of a
    module declare lies at one place in all of them, for which there may be no room; and an error
    is about one kernel then.
    """
    try:
        yield list(launches), _compiled(launches, chip)
    except GraphError:
        toolkit.check()
        for symbol, launch in launches.items():
            yield [symbol], _alone(symbol, launch, chip)


def _compiled(launches: dict[str, Launch], chip: Chip) -> bytes:
    """The cubin and the PTX of kernels; the PTX is that of their twins, if they have any."""
    ptx = compile_ptx(launches, chip)
    cubin, _ = toolkit.assemble(ptx, chip)
    twins = {symbol: launch.twin for symbol, launch in launches.items() if launch.twin is not None}
    return packed(cubin, compile_ptx(twins, chip) if twins else ptx)


def _alone(symbol: str, launch: Launch, chip: Chip) -> bytes:
    try:
        return _compiled({symbol: launch}, chip)
    except GraphError as error:
        if symbol not in error.message:
            error.message += f", kernel {symbol}"
        raise


def packed(cubin: bytes, ptx: str) -> bytes:
    """A cubin and the PTX it was made of, as the cache keeps them."""
    return len(cubin).to_bytes(_LENGTH_BYTES, "little") + cubin + ptx.encode()


def unpacked(code: bytes) -> tuple[bytes, bytes]:
    """The cubin and the PTX."""
    end = _LENGTH_BYTES + int.from_bytes(code[:_LENGTH_BYTES], "little")
    return code[_LENGTH_BYTES:end], code[end:]


def on_gpu(image: Image, compiled: CudaCompiled) -> Image:
    """The image of the share of a GPU, from one that says all but what its kernels are."""
    modules = {code: tuple(names) for code, names in compiled.modules.items()}
    pairs = [(*unpacked(code), names) for code, names in modules.items()]
    return replace(
        image,
        objects=tuple((cubin, names) for cubin, _, names in pairs),
        portable=tuple(ptx for _, ptx, _ in pairs),
        arity=tuple(len(compiled.launches[symbol].params) for symbol in image.kernels),
        shared=tuple(compiled.launches[symbol].shared for symbol in image.kernels),
        cpu=compiled.chip.name,
        features=(),
        triple="cuda",
    )


def sources(compiled: CudaCompiled) -> dict[str, str]:
    """The readable source of every kernel, by file name."""
    return {f"{symbol}.py": launch.text for symbol, launch in compiled.launches.items()}


def ptx_texts(compiled: CudaCompiled) -> dict[str, str]:
    """The PTX of every kernel by itself, and what it takes of a multiprocessor; by file name."""
    if compiled.chip.simulated:
        return {}
    made = {}
    for symbol, launch in compiled.launches.items():
        ptx = compile_ptx({symbol: launch}, compiled.chip)
        report = toolkit.assemble(ptx, compiled.chip)[1][symbol]
        shape = f"{launch.blocks} blocks of {launch.threads} threads"
        made[f"{symbol}.ptx"] = f"// {shape}; {report}\n{ptx}"
    return made
