"""Decompositions of random matrices beside the reference: what is unique is compared, and the rest
by what it is for, as vectors are known but for a sign or a phase, and eigenvalues but for an order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def random_matrix(array: Any, shape: Sequence[int]) -> Any:
    """An array like one of a sample, of another shape, whose singular values differ."""
    rng = np.random.default_rng(shape)
    made = rng.standard_normal(shape)
    if array.dtype.kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return np.ascontiguousarray((made / np.sqrt(max(1, *shape[-2:]))).astype(array.dtype))


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def is_orthogonal(q: Any) -> list[tuple[Any, Any]]:
    return [
        (adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *q.shape[-1:] * 2)))
    ]


def matched(values: Any, wants: Any) -> Any:
    """The values of each row in the order of those that they are nearest to."""
    made = np.array(values)
    for index in np.ndindex(made.shape[:-1]):
        left = list(made[index])
        nearest = (left.pop(int(np.argmin(np.abs(np.array(left) - w)))) for w in wants[index])
        made[index] = list(nearest)
    return made


def _eig(a: Any, got: Any, wants: Any) -> list[tuple[Any, Any]]:
    w, v = got
    return [(matched(w, wants[0]), wants[0]), (a @ v, v * w[..., None, :])]


def _eigh(a: Any, got: Any, wants: Any) -> list[tuple[Any, Any]]:
    w, v = got
    lower = np.tril(a) + adjoint(np.tril(a, -1))
    lower = lower - 1j * np.einsum("...ii->...i", a).imag[..., None] * np.eye(a.shape[-1])
    return [(w, wants[0]), (lower @ v, v * w[..., None, :]), *is_orthogonal(v)]


def _svd(a: Any, got: Any, wants: Any) -> list[tuple[Any, Any]]:
    u, s, vh = got
    k = s.shape[-1]
    made = (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]
    return [(s, wants[1]), (made, a), *is_orthogonal(u), *is_orthogonal(adjoint(vh))]


CHECKS: dict[str, Callable[[Any, Any, Any], list[tuple[Any, Any]]]] = {
    "eig": _eig,
    "eigvals": lambda a, got, wants: [(matched(got[0], wants[0]), wants[0])],
    "eigh": _eigh,
    "svd": _svd,
}


def wrong_factors(name: str, arrays: Sequence[Any], got: Any, wants: Sequence[Any]) -> str:
    """How the factors of a matrix are not what they are for, empty if they are."""
    got = list(got) if isinstance(got, tuple | list) else [got]
    for made, want in zip(got, wants, strict=True):
        if made.shape != want.shape or made.dtype != want.dtype:
            return f"{made.dtype}{list(made.shape)} is not {want.dtype}{list(want.shape)}"
    tolerance = 2e-3 if arrays[0].dtype in (np.float32, np.complex64) else 1e-8
    a = np.asarray(arrays[0], np.complex128)
    pairs = CHECKS[name](a, [np.asarray(g, np.complex128) for g in got], wants)
    for made, want in pairs:
        if not np.allclose(made, want, tolerance, tolerance):
            return f"differs by {np.max(np.abs(made - want))}"
    return ""
