"""Which products of matrices a library makes, and which are left to kernels.

The first time that a process meets a product on a model of GPU, both are tried: a library whose
results are others than the kernel's is not used, and of the rest the fastest is.  What was found
out stays the same for the process, and is kept for later ones in the cache folder:

    {"format": 1, "NVIDIA H200 sm_90": {"512x512x512 f32 -> f32 nn bias g5ec0...":
        {"kernel": 2.1e-5, "cublasLt": 1.8e-5, "algorithm": 0, "version": "130200"}}}

A key is a product with the kernels that it can stand for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.forks import fork_safe_lock
from graphc.runtime.cuda.autotune import Trial
from graphc.runtime.cuda.gemm import Gemm
from graphc.runtime.cuda.interface import DeviceError, Multiplier, Streamed
from graphc.runtime.cuda.matrix_addresses import fits
from graphc.runtime.files.files import cache_folder, write_atomically
from graphc.runtime.load.table import calls_until, operands_of, rows
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.part import DevicePart

VARIABLE = "GRAPHC_CUBLAS"
MODES = MEASURE, NEVER, ALWAYS = "measure", "never", "always"
FORMAT = 1
FILE = "products.json"
MOST_BYTES = 1 << 24
KERNEL, LIBRARY = "kernel", "cublasLt"


@record(frozen=True)
class Route:
    """Who makes a product: an algorithm of the library (number k of its plans), or kernels (-1).

    `kernel` and `library` are seconds; none where they were not measured.
    """

    algorithm: int = -1
    kernel: float | None = None
    library: float | None = None
    version: str = ""

    @property
    def name(self) -> str:
        return KERNEL if self.algorithm < 0 else LIBRARY


class GemmChoice:
    """The products of one share of a program: `routes` has all that could be made by a library,
    by their rows; `workspace` the bytes that those need which are."""

    def __init__(self, part: DevicePart) -> None:
        self.part = part
        self.routes: dict[int, Route] = {}
        self.plans: dict[int, Any] = {}
        self.calls: dict[int, Sequence[int]] = {}
        self.idle: set[int] = set()
        mode = mode_of()
        if part.image.products and mode != NEVER:
            self._choose(mode)
        self.workspace = max((plan.workspace for plan in self.plans.values()), default=0)

    def _choose(self, mode: str) -> None:
        part, words = self.part, self.part.table
        starts = list(rows(words))
        for row, product in part.image.products.items():
            calls = self.calls[row] = calls_until(words, starts, row, product.calls)
            kernels = [part.image.kernels[words[call + 2]] for call in calls]
            key = f"{product} {' '.join(kernels)}"
            try:
                route = self.routes[row] = known(mode, part.driver.kind, key, self, row)
                if route.algorithm >= 0:
                    plans = part.driver.multiplier().plans(product)
                    self.plans[row] = plans[route.algorithm]
                    self.idle.update(calls[:-1])
            except DeviceError as error:
                raise part.image.blamed(error, row) from None

    def step(
        self, row: int, addresses: Sequence[int], status: int, workspace: int
    ) -> Streamed | None:
        """What a row does where a library makes its product; None for a plain launch."""
        if row in self.idle:
            return _nothing
        plan = self.plans.get(row)
        if plan is None:
            return None
        product = self.part.image.products[row]
        if not fits(product, addresses):
            return self.launches(row, addresses, status)
        return self.part.driver.multiplier().prepare(plan, addresses, workspace, row)

    def called(self, row: int) -> str:
        """The library, where it is that which does the work of a row; else nothing."""
        return LIBRARY if row in self.plans or row in self.idle else ""

    def launches(self, row: int, addresses: Sequence[int], status: int) -> Streamed:
        """The kernels of a product whose last row has operands at these addresses."""
        words, steps = self.part.table, []
        places = dict(zip(operands_of(words, row), addresses))
        for call in self.calls[row]:
            own = [places[operand] for operand in operands_of(words, call)]
            steps.append(self.part.launch(call, addresses if call == row else own, status))

        def run(stream: int) -> None:
            for step in steps:
                step(stream)

        return run


def _nothing(stream: int) -> None:
    """A row whose work is done by a later one."""


def mode_of() -> str:
    """What GRAPHC_CUBLAS says. Raises GraphError."""
    found = os.environ.get(VARIABLE) or MEASURE
    if found not in MODES:
        raise GraphError(
            f"{VARIABLE} must be {', '.join(MODES[:-1])} or {MODES[-1]}, got {found!r}"
        )
    return found


# ------------------------------------------------------------------------------------ decisions


_decided: dict[tuple[str, str, str], Route] = {}
_deciding = fork_safe_lock()


def known(mode: str, kind: str, key: str, products: GemmChoice, row: int) -> Route:
    """The route of a product, the same for every thread. With the mode "always" it raises
    GraphError where there is no library, and DeviceError where that fails."""
    with _deciding:
        found = _decided.get((mode, kind, key))
        if found is None:
            decide = _always if mode == ALWAYS else _measured
            found = _decided[mode, kind, key] = decide(kind, key, products, row)
        return found


def _always(kind: str, key: str, products: GemmChoice, row: int) -> Route:
    library = products.part.driver.multiplier()
    with Trial(products, row, library) as trial:
        agreeing = trial.agreeing()
    return Route(agreeing[0][0], version=library.version) if agreeing else Route()


def _measured(kind: str, key: str, products: GemmChoice, row: int) -> Route:
    if products.part.image.products[row].multiplications < tuned.trial_work:
        return Route()
    kept = _stored().get(kind, {}).get(key)
    if kept is not None and kept.algorithm < 0:
        return kept
    try:
        library = products.part.driver.multiplier()
        if kept is not None and _still_is(kept, products.part.image.products[row], library):
            return kept
        found = _tried(products, row, library)
    except GraphError:  # no library, no memory, or it fails: there are kernels
        return Route()
    _store(kind, key, found)
    return found


def _still_is(kept: Route, product: Gemm, library: Multiplier) -> bool:
    """Does the library have the algorithm that an earlier process chose?"""
    return kept.version == library.version and kept.algorithm < len(library.plans(product))


def _tried(products: GemmChoice, row: int, library: Multiplier) -> Route:
    """The fastest of kernels and library. Raises DeviceError and LimitError."""
    with Trial(products, row, library) as trial:
        kernel = trial.seconds(trial.kernels)
        times = [(trial.seconds(step), number) for number, step in trial.agreeing()]
    best, number = min(times, default=(None, -1))
    if best is None or best >= kernel:
        number = -1
    return Route(number, kernel, best, library.version)


def _path() -> Path:
    return cache_folder() / FILE


def _stored() -> dict[str, dict[str, Route]]:
    """What earlier processes have found out, by model; nothing of a file that is damaged."""
    try:
        path = _path()
        if path.stat().st_size > MOST_BYTES:
            return {}
        found = json.loads(path.read_text())
        if found.pop("format") != FORMAT:
            return {}
        return {
            kind: {key: _route(values) for key, values in known.items()}
            for kind, known in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _route(values: dict[str, Any]) -> Route:
    kernel, library = values[KERNEL], values[LIBRARY]
    number, version = values["algorithm"], values["version"]
    if type(number) is not int or type(version) is not str or type(kernel) is not float:
        raise TypeError(values)
    if library is not None and type(library) is not float:
        raise TypeError(values)
    return Route(max(number, -1), kernel, library, version)


def _store(kind: str, key: str, route: Route) -> None:
    """Keep a route for later processes, if that can be."""
    found = _stored()
    found.setdefault(kind, {})[key] = route
    listed: dict[str, Any] = {"format": FORMAT}
    for name, routes in sorted(found.items()):
        listed[name] = {key: _listed(route) for key, route in sorted(routes.items())}
    with suppress(OSError, GraphError):
        os.makedirs(_path().parent, mode=0o700, exist_ok=True)
        write_atomically(_path(), [f"{json.dumps(listed, indent=1)}\n".encode()])


def _listed(route: Route) -> dict[str, Any]:
    return {
        KERNEL: route.kernel,
        LIBRARY: route.library,
        "algorithm": route.algorithm,
        "version": route.version,
    }
