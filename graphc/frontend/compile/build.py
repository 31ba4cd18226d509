"""Engine: from a traced or loaded graph to something that runs, with every stage on record."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from graphc.base.record import record, replace
from graphc.config import Config
from graphc.errors import UNCOMPUTABLE, GraphError, uncomputable
from graphc.forks import fork_safe_lock
from graphc.frontend.compile.memory_check import check_bytes, check_filled, check_limit
from graphc.ir.graph import Graph, Program
from graphc.runtime.devices.device import missing_here

if TYPE_CHECKING:
    from graphc.codegen.compiler import Compiled
    from graphc.passes.pipeline import StageResult
    from graphc.runtime.call.execute import Executable
    from graphc.runtime.call.open_executable import OpenExecutable, Shapes
    from graphc.runtime.load.program import Image
    from graphc.runtime.load.size_formulas import Formulas


@record(eq=False)
class Built:
    """A compilation: its stages and the image they end in, which `threads` threads run."""

    stages: tuple[StageResult, ...]
    image: Image
    kernels: Compiled
    threads: int
    seconds: float = 0.0
    build_seconds: float = 0.0
    elsewhere: str = ""  # why only another machine can run it
    _executable: Executable | None = None
    _open: OpenExecutable | None = None
    _lock: threading.RLock = field(default_factory=fork_safe_lock)

    @property
    def executable(self) -> Executable:
        """What runs the image. Raises GraphError where it needs another machine, or a GPU that is
        not there: compiling needs none.
        """
        made = self._executable
        if made is None:
            from graphc.runtime.devices.multi_device import executable

            self._check_machine()
            with self._lock:
                made = self._executable = self._executable or executable(
                    self.image, threads=self.threads
                )
        return made

    def _check_machine(self) -> None:
        if self.elsewhere:
            raise GraphError(self.elsewhere, hint='target="cpu" makes code for this machine')

    @property
    def is_open(self) -> bool:
        """Whether it serves arrays of many sizes: it runs as `bound`."""
        return self.image.formulas is not None

    @property
    def formulas(self) -> Formulas | None:
        """What its open sizes are, and what must hold of them."""
        return self.image.formulas

    def symbols_of(self, shapes: Shapes) -> dict[str, int]:
        """The values of the open sizes for parameters of these shapes, which it is for."""
        formulas = self.image.formulas
        assert formulas is not None
        return dict(zip(formulas.symbols, formulas.symbols_of(shapes) or (), strict=True))

    def refusal(self, shapes: Shapes) -> str:
        """The decision that does not hold for these shapes."""
        formulas = self.image.formulas
        symbols = formulas.symbols_of(shapes) if formulas is not None else None
        if formulas is None or symbols is None:
            return ""
        broken = formulas.broken(formulas.known(symbols))
        return broken.text if broken is not None else ""

    @property
    def opened(self) -> OpenExecutable:
        """What runs it for arrays of many sizes."""
        from graphc.runtime.call.open_executable import OpenExecutable
        from graphc.runtime.devices.multi_device import executable

        self._check_machine()
        with self._lock:
            if self._open is None:

                def make(image: Image) -> Executable:
                    check_filled(image)
                    return executable(image, threads=self.threads)

                self._open = OpenExecutable(self.image, make)
        return self._open

    def save(self, path: str | Path, text: str, key: bytes | None = None) -> None:
        """Write a .gcx file, signed with a key if there is one; `text` is that of its graph."""
        from graphc.runtime.files.gcx_writer import save

        save(replace(self.image, text=text), path, key=key)

    def run_by(self, executable: Any) -> None:
        """Have something else than the image run it: several programs in turn."""
        self._executable = executable

    def bound(self, shapes: Shapes) -> Built | None:
        """The compilation for parameters of these shapes; None if it is not for them."""
        found = self.opened.bound(shapes)
        if found is None:
            return None
        seconds = self.seconds, self.build_seconds
        return Built(
            self.stages, found.image, self.kernels, self.threads, *seconds, _executable=found
        )

    @property
    def stack_bytes(self) -> int:
        """The memory that the stacks of loops have grown to."""
        return self._executable.stack_bytes if self._executable is not None else 0

    @property
    def program(self) -> Graph | Program:
        return self.stages[-1].value

    @property
    def steps(self) -> int:
        """How many kernel calls one run makes; a block that loops counts its calls once."""
        return sum(len(image.origins) for image in self.image.images)

    @property
    def compiled(self) -> int:
        """How many kernels were compiled now."""
        return self.kernels.compiled

    @property
    def cached(self) -> int:
        """How many kernels the object-code cache held."""
        return self.kernels.cached


def _elsewhere(image: Image, config: Config) -> str:
    """Why this machine cannot run code for the target of a config; "" where it can."""
    if config.target.partition(":")[2] in ("", "host"):
        return ""
    cpus = (each for each in image.images if not each.on_gpu)
    reasons = (missing_here(each.triple, each.cpu, each.features) for each in cpus)
    return next(filter(None, reasons), "")


def stages_of(
    value: Graph | Program,
    config: Config,
    traced_seconds: float = 0.0,
    stage: str | None = None,
    until: str = "plan",
    sizes: Mapping[str, int] | None = None,
) -> tuple[StageResult, ...]:
    """Run the passes on a graph; the first stage is the graph itself.

    `stage` names the pass whose output the graph is: only the passes after it run, and none after
    `until`.  `sizes` are what its symbols stand for.
    """
    from graphc.passes.pipeline import run

    return tuple(run(value, config, stage, traced_seconds, until=until, sizes=sizes))


@contextmanager
def _compiling(name: str) -> Iterator[None]:
    """What the machine or the graph's numbers make impossible is one clear error."""
    try:
        yield
    except UNCOMPUTABLE as error:
        raise uncomputable(f"the code of {name}", error) from error
    except OSError as error:  # libllvmlite is 150 MB that the address space may not have
        raise GraphError(
            f"{name} cannot be compiled: {error}",
            hint="is llvmlite installed, and is there memory left to load it (ulimit -v)?",
        ) from error


def build(
    value: Graph | Program,
    config: Config,
    traced_seconds: float = 0.0,
    stage: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Built:
    """Compile a graph, for `sizes` if it has symbols; writes the dump folder when the configuration
    names one."""
    from graphc.codegen.build import build_image

    started = perf_counter()
    with _compiling(value.name):
        stages = stages_of(value, config, traced_seconds, stage, sizes=sizes)
        if config.memory_limit is not None:
            check_limit(stages[-1].value, config.memory_limit)
        lowered = perf_counter()
        image, kernels = build_image(stages[-1].value, config)
    built = Built(stages, image, kernels, config.threads, elsewhere=_elsewhere(image, config))
    on_gpu = any(each.on_gpu for each in image.images)
    if not (built.is_open or built.elsewhere or on_gpu):
        built.executable  # noqa: B018  (makes it)
    else:
        image.check()
    finished = perf_counter()
    built.seconds, built.build_seconds = traced_seconds + finished - started, finished - lowered
    results = sum(slot.nbytes for slot in image.results)
    arenas = sum(each.arena_bytes for each in image.images)
    check_bytes(image.name, arenas + results, "intermediate values and results")
    if config.dump is not None:
        from graphc.frontend.files.dump import write_dump

        write_dump(config.dump, built, config)
    return built
