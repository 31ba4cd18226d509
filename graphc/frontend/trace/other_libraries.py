"""What is told of functions of PyTorch and SciPy that were called on traced arrays.

They want data, and fail somewhere inside: the error names the user's line, the function that was
called there, and what stands for it here.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Iterator
from itertools import takewhile
from types import FrameType
from typing import Any

import numpy as np

from graphc.errors import GraphError, TraceError
from graphc.frontend.trace.numpy_errors import as_raised
from graphc.ir.unknowns import Location
from graphc.ir.user_lines import locate, user_file
from graphc.ops.record.value import PUBLIC

_TO_PYTORCH = (
    "gc.from_torch(module, *examples) compiles a module of PyTorch, "
    'torch.compile(function, backend="graphc") any code of it; NumPy\'s functions take traced '
    "arrays"
)
_OF_SCIPY = {  # what has another name here; of scipy.special, linalg and fft most have the same
    "special.gammaln": "gc.lgamma",
    "special.psi": "gc.digamma",
    "signal.convolve": "gc.fftconvolve",
    "signal.fftconvolve": "gc.fftconvolve",
    "signal.lfilter": "gc.scan over the samples",
    "signal.sosfilt": "gc.scan over the samples",
}
_Visited = tuple[FrameType, int]


def of_other_library(error: Exception) -> GraphError | None:
    """What to raise for an error that a function of theirs ended with; None for all others."""
    if not isinstance(error, GraphError) and "Tracer" not in str(error):
        return None
    frames = [*_visited(error)]
    library = _package(frames[-1][0]) if frames else ""
    inside = [*takewhile(lambda each: _package(each[0]) == library, reversed(frames))][::-1]
    if library == "scipy":
        return _told(error, *_of_scipy(inside), _calling(frames, inside))
    if library == "torch":
        return _told(error, _of_torch(error), _TO_PYTORCH, _calling(frames, inside))
    if _refused_by_torch(error):  # a function of C, which has no frame
        return _told(error, _of_torch(error), _TO_PYTORCH, _calling(frames, []))
    return None


def _visited(error: Exception) -> Iterator[_Visited]:
    """Frames with their lines, without those of graphc, NumPy and Python's own library."""
    entry = error.__traceback__
    while entry is not None:
        frame = entry.tb_frame
        if user_file(frame.f_code) is not None and _package(frame) not in sys.stdlib_module_names:
            yield frame, entry.tb_lineno
        entry = entry.tb_next


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _calling(frames: list[_Visited], inside: list[_Visited]) -> Location | None:
    """The line that called what is inside: of what was traced, or the call that traces it."""
    own = frames[: len(frames) - len(inside)]
    if not own:
        return locate()
    frame, line = own[-1]
    return user_file(frame.f_code) or "", line


def _told(error: Exception, what: str, hint: str, location: Location | None) -> GraphError:
    own = isinstance(error, GraphError)
    details = (f"inside of it: {error.message}",) if isinstance(error, GraphError) else ()
    made = TraceError(
        f"{what} cannot take traced arrays: it needs their data",
        details=details,
        location=location,
        hint=hint,
    )
    return made if own else as_raised(made, error)


def _refused_by_torch(error: Exception) -> bool:
    """must be Tensor, not Tracer; got (Tracer, Parameter, ...); but got Tracer ..."""
    is_told = re.search(r"\b(not|got) .*\bTracer\b", str(error))
    return type(error) is TypeError and "torch" in sys.modules and is_told is not None


def _of_torch(error: Exception) -> str:
    named = re.match(r"(\w+)\(\)", str(error))
    return f"PyTorch's {named[1]}" if named else "a function of PyTorch"


# ------------------------------------------------------------------------------------ SciPy


def _of_scipy(inside: list[_Visited]) -> tuple[str, str]:
    """The public function that was called first, and what stands for it here."""
    for frame, _ in inside:
        name = frame.f_code.co_name
        home = ".".join(str(frame.f_globals.get("__name__")).split(".")[:2])
        if callable(getattr(sys.modules.get(home), name, None)):
            return f"{home}.{name}", in_place_of(f"{home}.{name}")
    return "a function of SciPy", in_place_of("scipy.function")


def ufunc_name(ufunc: Any) -> str:
    """How a user writes a ufunc: np.add, scipy.special.erf."""
    name = str(getattr(ufunc, "__name__", ufunc))
    if getattr(np, name, None) is ufunc:
        return f"np.{name}"
    is_scipys = getattr(sys.modules.get("scipy.special"), name, None) is ufunc
    return f"scipy.special.{name}" if is_scipys else name


def in_place_of(name: str) -> str:
    """The hint for a function of SciPy: what stands for it here, or how to call it in the run."""
    path = name.removeprefix("scipy.")
    module, _, title = path.rpartition(".")
    known = _OF_SCIPY.get(path)
    if known is None and module == "special" and title in PUBLIC:
        known = _written(title)
    if known is None and module in ("linalg", "fft") and path in PUBLIC:
        known = _written(path)
    called = f"gc.callback({name}, gc.spec(shape, dtype), x)"
    return f"use {known}" if known else f"{called} calls it while the function runs"


def _written(name: str) -> str:
    """How a user writes a public function, which NumPy may have, too."""
    try:
        operator.attrgetter(name)(np)
    except AttributeError:
        return f"gc.{name}"
    return f"np.{name}"
