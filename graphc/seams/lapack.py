"""LAPACK: the copy that NumPy brings for its own `linalg`, called from kernels by address.

A kernel that calls it needs no Python, takes no lock and costs 14 ns a call.  Where NumPy was built
without, or hides it, the same names lead to functions of Python that call `np.linalg` and take the
interpreter's lock: a matrix then takes some 20 us more.  Arguments are addresses, as in Fortran;
integers are read as 64 bits here, and a library of 32 bits finds the lower half in the same place.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

PREFIX = "lapack."  # of the symbols by which objects call routines
ALONE = "alone."  # behind it: of one for a matrix that OpenBLAS gives no second thread to
_SPELLINGS = ("scipy_{}_64_", "{}_64_", "{}_")
_DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
_NAME = re.compile(rb"lapack\.((?:alone\.)?[a-z]+)\0")

Words = list[int]  # addresses of the arguments


def addresses(code: bytes) -> dict[str, int]:
    """The routines that object code names, by their symbols there."""
    names = [name.decode() for name in _NAME.findall(code)]
    return {f"{PREFIX}{name}": address(name) for name in names}


def is_called(code: bytes) -> bool:
    """Does object code call a routine?"""
    return PREFIX.encode() in code


def may_share(code: bytes) -> bool:
    """Does it call one that OpenBLAS may take several threads for?"""
    return any(not name.startswith(ALONE.encode()) for name in _NAME.findall(code))


@cache
def address(name: str) -> int:
    """The address of a routine such as "dgesdd"; 0 for one that is not known."""
    name = name.removeprefix(ALONE)
    return native(name) or _in_python(name)


def native(name: str) -> int:
    """Its address in NumPy's library; 0 where that has none."""
    library = _library()
    for spelling in _SPELLINGS:
        function = getattr(library, spelling.format(name), None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


@cache
def thread_count() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """What tells how many threads a routine computes on, and what sets it; None where NumPy's
    library is another one.  It is one number for the process, which NumPy goes by, too."""
    library = _library()
    for spelling in ("scipy_openblas_{}64_", "openblas_{}64_", "openblas_{}"):
        tell, change = (
            getattr(library, spelling.format(f"{verb}_num_threads"), None)
            for verb in ("get", "set")
        )
        if tell is not None and change is not None:
            change.argtypes, change.restype = [ctypes.c_int], None
            return tell, change
    return None


@cache
def _library() -> ctypes.CDLL | None:
    """NumPy's module of linear algebra: symbols are looked for in what it is linked with, too."""
    try:
        return ctypes.CDLL(np.linalg._umath_linalg.__file__)
    except (AttributeError, OSError, TypeError):
        return None


# ------------------------------------------------------------------------------------ by NumPy

_kept: dict[str, Any] = {}  # functions whose addresses kernels know


def _in_python(name: str) -> int:
    found = _ROUTINES.get(name[1:])
    if found is None or name[0] not in _DTYPES:
        return 0
    count, run = found
    count += name[1:] == "gesdd" and name[0] in "cz"  # one more array of scratch
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)
    made = _kept[name] = kind(partial(_guarded, run, np.dtype(_DTYPES[name[0]])))
    return ctypes.cast(made, ctypes.c_void_p).value or 0


def _guarded(run: Callable[..., None], dtype: np.dtype[Any], *places: int) -> None:
    """Nothing may be raised out of it: `info`, the last argument, says that it has failed."""
    try:
        run(dtype, *places)
    except Exception:  # noqa: BLE001
        ctypes.c_int64.from_address(places[-1]).value = 1


def _number(place: int) -> int:
    return ctypes.c_int64.from_address(place).value


def _vector(place: int, count: int, dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if not count:
        return np.zeros(0, dtype)
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(place)
    return np.frombuffer(raw, dtype)


def _matrix(place: int, rows: int, columns: int, dtype: Any) -> Any:
    """A matrix by columns, one right after the other."""
    return _vector(place, rows * columns, dtype).reshape(columns, rows).T


def _geqrf(dtype: Any, *places: int) -> None:
    m, n = map(_number, places[:2])
    packed, tau = np.linalg.qr(_matrix(places[2], m, n, dtype), mode="raw")
    _matrix(places[2], m, n, dtype)[...] = packed.T
    _vector(places[4], min(m, n), dtype)[...] = tau


def _orgqr(dtype: Any, *places: int) -> None:
    """The product of k reflectors 1 - tau v v^H, times n columns of a unit matrix."""
    m, n, k = map(_number, places[:3])
    a, tau = _matrix(places[3], m, n, dtype), _vector(places[5], k, dtype)
    made = np.eye(m, n, dtype=dtype)
    for step in reversed(range(k)):
        v = np.concatenate([np.zeros(step), [1], a[step + 1 :, step]]).astype(dtype)
        made -= tau[step] * np.outer(v, v.conj() @ made)
    a[...] = made


def _gesdd(dtype: Any, *places: int) -> None:
    job, m, n = map(_number, places[:3])
    a, k = _matrix(places[3], m, n, dtype), min(m, n)
    s = _vector(places[5], k, dtype.char.lower())
    if chr(job) == "N":
        s[...] = np.linalg.svd(a, compute_uv=False)
        return
    whole = chr(job) == "A"
    u, s[...], vt = np.linalg.svd(a, full_matrices=whole)
    for place, made in ((places[6], u), (places[8], vt)):
        _matrix(place, len(made), made.shape[1], dtype)[...] = made


def _heevd(dtype: Any, *places: int) -> None:
    job, _, n = map(_number, places[:3])
    a, w = _matrix(places[3], n, n, dtype), _vector(places[5], n, dtype.char.lower())
    if chr(job) == "N":
        w[...] = np.linalg.eigvalsh(a)
    else:
        w[...], a[...] = np.linalg.eigh(a)


def _geev(dtype: Any, *places: int) -> None:
    """Columns of a pair of conjugate vectors are the real and the imaginary parts of the first."""
    n, parts = _number(places[2]), 1 if dtype.kind == "c" else 2
    job, a = chr(_number(places[1])), _matrix(places[3], n, n, dtype)
    w, v = np.linalg.eig(a) if job == "V" else (np.linalg.eigvals(a), None)
    for place, part in zip(places[5:], (w,) if parts == 1 else (w.real, w.imag), strict=False):
        _vector(place, n, dtype)[...] = part
    if v is not None:
        second = np.concatenate([[False], (w.imag[:-1] > 0) & (w.imag[1:] < 0)])
        shown = v if parts == 1 else np.where(second, -v.imag, v.real)
        _matrix(places[7 + parts], n, n, dtype)[...] = shown


_ROUTINES: dict[str, tuple[int, Callable[..., None]]] = {
    "geqrf": (8, _geqrf),
    "orgqr": (9, _orgqr),
    "ungqr": (9, _orgqr),
    "gesdd": (14, _gesdd),
    "syevd": (11, _heevd),
    "heevd": (13, _heevd),
    "geev": (14, _geev),
}
