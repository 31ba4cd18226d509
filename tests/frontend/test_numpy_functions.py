"""Every function of NumPy that can be overridden works on traced arrays, or says why it cannot.

The table is of calls: what they compute with `np` being NumPy, with `graphc.numpy`, and in a
compiled function, is the same.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.char
import numpy.fft
import numpy.lib.recfunctions
import numpy.polynomial
import numpy.strings
import pytest
from numpy.testing.overrides import get_overridable_numpy_array_functions

import graphc as gc
import graphc.numpy as gnp
from graphc.errors import GraphError
from graphc.frontend.trace.dispatch import numpy_name

RNG = np.random.default_rng(7)
ARRAYS: dict[str, Any] = {
    "v": np.array([3.0, -1.0, 0.5, 2.0, -1.0, 4.0]),
    "w": np.array([1.0, 2.0, 0.5, 4.0, 3.0, 2.5]),
    "x": RNG.normal(size=(3, 4)),
    "y": RNG.normal(size=(3, 4)).astype(np.float32),
    "n": np.array([[1.0, np.nan, 3.0, -2.0], [np.nan, np.nan, np.nan, np.nan], [5.0, 6, 7, 8]]),
    "s": np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.5], [0.5, -0.5, 2.0]]),
    "t": RNG.normal(size=(2, 3, 4)),
    "i": np.array([2, 0, 1, 2]),
    "k": np.array([[5, 3, 9], [0, 250, 77]], np.uint8),
    "m": np.array([True, False, True, True, False, True]),
    "c": np.array([[1 + 2j, -1j, 0.5], [3, -2 + 1j, 1], [0.25j, 1, -1]]),
    "z": np.array([1.0, 0.25, 2.0]),
}

# By function: calls separated by "|"; after "=>" what they are in NumPy, where sizes are not given.
CALLS: dict[str, str] = {
    "all": "np.all(x > -9) | np.all(x > 0, 1, keepdims=True)",
    "allclose": "np.allclose(x, x + 1e-12)",
    "amax": "np.amax(x, axis=0)",
    "amin": "np.amin(x, 1, None, True)",
    "angle": "np.angle(c) | np.angle(c, deg=True)",
    "any": "np.any(x > 1, axis=(0, 1)) | np.any(x > 0, 0, where=x < 1)",
    "append": "np.append(x, y) | np.append(x, y, axis=0)",
    "apply_along_axis": "np.apply_along_axis(lambda r: r * r.sum(), 1, x)",
    "apply_over_axes": "np.apply_over_axes(np.sum, t, (0, 2))",
    "arange": "np.arange(5) * v[0] | np.arange(1, 2, 0.25) + v[0]",
    "argmax": "np.argmax(x) | np.argmax(x, 1, keepdims=True)",
    "argmin": "np.argmin(x, axis=0)",
    "argpartition": "np.take_along_axis(x, np.argpartition(x, 1), -1)[:, 1]",
    "argsort": "np.argsort(x, axis=0, kind='stable') | np.argsort(c)",
    "argwhere": "np.argwhere(v > 0, size=4) => np.argwhere(v > 0)",
    "around": "np.around(x, 2)",
    "array": "np.array([v[0], v[1], 2.0]) | np.array(x, ndmin=3)",
    "array_equal": "np.array_equal(x, x) | np.array_equal(n, n, equal_nan=True)",
    "array_equiv": "np.array_equiv(v, np.stack([v, v])) | np.array_equiv(x, v)",
    "array2string": "isinstance(np.array2string(x, precision=3), str)",
    "array_repr": "isinstance(np.array_repr(x), str)",
    "array_str": "isinstance(np.array_str(x), str)",
    "array_split": "np.array_split(v, 4) | np.array_split(x, [1, 3], axis=1)",
    "asanyarray": "np.asanyarray(x, dtype=np.float32)",
    "asarray": "np.asarray([v[0], v[2]])",
    "ascontiguousarray": "np.ascontiguousarray(x.T)",
    "asfortranarray": "np.asfortranarray(x)",
    "astype": "np.astype(x, np.int32)",
    "atleast_1d": "np.atleast_1d(v[0])",
    "atleast_2d": "np.atleast_2d(v)",
    "atleast_3d": "np.atleast_3d(v)",
    "average": "np.average(x) | np.average(v, weights=w, returned=True) "
    " | np.average(x, 0, z, True)",
    "bincount": "np.bincount(i, minlength=4) | np.bincount(i, np.ones(4), 5)",
    "block": "np.block([[s, s], [s, s]])",
    "broadcast_arrays": "np.broadcast_arrays(x, x[0])",
    "broadcast_to": "np.broadcast_to(z, (2, 3))",
    "can_cast": "np.can_cast(np.float32, v.dtype)",
    "choose": "np.choose(i, [v[:4], w[:4], v[2:]]) | np.choose(i + 2, [v[:4], w[:4]], mode='wrap')",
    "clip": "np.clip(x, -1, 1) | np.clip(x, None, y) | np.clip(x, min=0)",
    "column_stack": "np.column_stack([v, w])",
    "common_type": "np.common_type(x, y) is np.float64",
    "compress": "np.compress([True, False, True], x, axis=0)",
    "concatenate": "np.concatenate([x, y], axis=1) | np.concatenate((x, y), axis=None, dtype='f4')",
    "convolve": "np.convolve(v, w) | np.convolve(v, w[:3], 'same') | np.convolve(v, z, 'valid')",
    "copy": "np.copy(x)",
    "corrcoef": "np.corrcoef(x) | np.corrcoef(v, w, dtype=np.float32)",
    "correlate": "np.correlate(v, w, 'full')",
    "count_nonzero": "np.count_nonzero(x > 0) | np.count_nonzero(k, axis=1, keepdims=True)",
    "cov": "np.cov(x) | np.cov(v, w, bias=True) | np.cov(x, fweights=i + 1, aweights=w[:4])"
    " | np.cov(x, rowvar=False, aweights=z)",
    "cross": "np.cross(s, z)",
    "cumprod": "np.cumprod(x, axis=1)",
    "cumsum": "np.cumsum(x) | np.cumsum(k, 0)",
    "cumulative_prod": "np.cumulative_prod(v, include_initial=True)",
    "cumulative_sum": "np.cumulative_sum(x, axis=1)",
    "delete": "np.delete(v, [1, 3]) | np.delete(x, 1, axis=1)",
    "diag": "np.diag(s) | np.diag(v, k=1)",
    "diag_indices_from": "np.diag_indices_from(s)",
    "diagflat": "np.diagflat(z)",
    "diagonal": "np.diagonal(t, 1, 1, 2)",
    "diff": "np.diff(x) | np.diff(v, 2, prepend=0.0)",
    "digitize": "np.digitize(v, [0.0, 1.0, 3.0])",
    "dot": "np.dot(s, z)",
    "dsplit": "np.dsplit(t, 2)",
    "dstack": "np.dstack([x, y])",
    "ediff1d": "np.ediff1d(v) | np.ediff1d(x, to_end=[9.0], to_begin=0.0)",
    "einsum": "np.einsum('ij,j->i', s, z)",
    "einsum_path": "np.einsum_path('ij,j->i', s, z)[0][1] == (0, 1)",
    "empty": "np.empty(3).shape",
    "empty_like": "np.empty_like(x).shape",
    "expand_dims": "np.expand_dims(x, (0, 2))",
    "eye": "np.eye(3, 4, k=1) + x",
    "fix": "np.fix(v)",
    "flatnonzero": "np.flatnonzero(m, size=4) => np.flatnonzero(m)",
    "flip": "np.flip(x) | np.flip(x, 1)",
    "fliplr": "np.fliplr(x)",
    "flipud": "np.flipud(x)",
    "fromfunction": "np.fromfunction(lambda a, b: a + b, (3, 4)) + x",
    "full": "np.full((2, 2), v[0])",
    "full_like": "np.full_like(x, v[0])",
    "geomspace": "np.geomspace(1, 256, 9) * z[0] | np.geomspace(w[0], w[3], 7)"
    " | np.geomspace(z, w[:3], 5, endpoint=False, axis=-1) | np.geomspace(-w[1], -w[0], 3)"
    " | np.geomspace(abs(y), 2.0, 3)",
    "gradient": "np.gradient(x) | np.gradient(v, 2.0)",
    "histogram": "np.histogram(v, 4) | np.histogram(v, [-1.0, 0.0, 4.0], weights=w)"
    " | np.histogram(v[:0], 2)"
    " | np.histogram(x, bins=5, range=(-1, 1), density=True)",
    "histogram2d": "np.histogram2d(v, w, 3) | np.histogram2d(v, w, [2, 4], density=True)"
    " | np.histogram2d(v, w, [-2.0, 0.0, 2.0, 5.0])",
    "histogram_bin_edges": "np.histogram_bin_edges(v, 5)",
    "histogramdd": "np.histogramdd(x, 3) | np.histogramdd([v, w], (2, [0.0, 2.0, 4.0]), weights=v)"
    " | np.histogramdd([v, w], range=[(0, 2), None], density=True)",
    "hsplit": "np.hsplit(x, 2)",
    "hstack": "np.hstack([x, y])",
    "i0": "np.i0(x * 3) | np.i0(v * 20) | np.i0(y)",
    "identity": "np.identity(3) @ z",
    "imag": "np.imag(c)",
    "inner": "np.inner(s, z)",
    "insert": "np.insert(v, 1, 9.0) | np.insert(x, [1, 2], 0.0, axis=1)",
    "interp": "np.interp(x, np.sort(w), v)",
    "intersect1d": "np.intersect1d(v, w, size=5)[:4] => np.intersect1d(v, w)"
    " | np.intersect1d(v, w, return_indices=True, size=4)"
    " => np.intersect1d(v, w, return_indices=True)",
    "isclose": "np.isclose(x, y, 0.1)",
    "iscomplex": "np.iscomplex(c)",
    "iscomplexobj": "np.iscomplexobj(c)",
    "isin": "np.isin(v, w) | np.isin(i, [0, 1], invert=True, kind='table')",
    "isneginf": "np.isneginf(-1 / (x - x[0]))",
    "isposinf": "np.isposinf(x)",
    "isreal": "np.isreal(c)",
    "isrealobj": "np.isrealobj(c)",
    "ix_": "x[np.ix_([0, 2], i)]",
    "kron": "np.kron(s, x)",
    "lexsort": "np.lexsort((v, w))",
    "linspace": "np.linspace(v[1], v[0], 5) | np.linspace(z, 2 * z, 3, endpoint=False, axis=1)",
    "logspace": "np.logspace(0.0, z[0], 4) | np.logspace(z, 2.0, 3, base=2.0, dtype='f4', axis=1)"
    " | np.logspace(1, 2, 3, base=z)",
    "matrix_transpose": "np.matrix_transpose(t)",
    "max": "np.max(x, 0, initial=1.0) | np.max(x, where=x < 0, initial=-9)",
    "may_share_memory": "np.may_share_memory(x, y)",
    "mean": "np.mean(x, (0, 1)) | np.mean(k, 1) | np.mean(x, 0, where=x > -3)",
    "median": "np.median(x) | np.median(x + 0, 0, None, True)",
    "meshgrid": "np.meshgrid(z, v) | np.meshgrid(z, v, indexing='ij', sparse=True)",
    "min": "np.min(t, axis=(0, 2))",
    "min_scalar_type": "np.min_scalar_type(x) == np.float64",
    "moveaxis": "np.moveaxis(t, 0, 2) | np.moveaxis(source=0, destination=1, a=x)",
    "nan_to_num": "np.nan_to_num(n) | np.nan_to_num(n, nan=3.0)",
    "nanargmax": "np.nanargmax(n[0]) | np.nanargmax(n[::2], 1, keepdims=True)",
    "nanargmin": "np.nanargmin(n[::2], axis=1)",
    "nancumprod": "np.nancumprod(n, 1) | np.nancumprod(n, axis=0, dtype=np.float32)",
    "nancumsum": "np.nancumsum(n) | np.nancumsum(n, axis=1)",
    "nanmax": "np.nanmax(n[::2], 1) | np.nanmax(n, initial=6.5, where=n < 6)"
    " | np.nanmax(m, initial=1, where=v < 0)",
    "nanmean": "np.nanmean(n[::2], axis=1) | np.nanmean(n, where=n > 0)",
    "nanmedian": "np.nanmedian(n[::2], 1) | np.nanmedian(n + 0, overwrite_input=True)",
    "nanmin": "np.nanmin(n[::2], 0)",
    "nanpercentile": "np.nanpercentile(n[::2], [25, 60], axis=1)",
    "nanprod": "np.nanprod(n, 1) | np.nanprod(n, initial=2.0)",
    "nanquantile": "np.nanquantile(n[::2], 0.3, 1, keepdims=True) | np.nanquantile(n, [0.1, 0.9])"
    " | np.nanquantile(x[:0], 0.5, axis=0)"
    " | np.nanquantile(n[::2], 0.4, 1, method='hazen') | np.nanquantile(k, 0.4)",
    "nanstd": "np.nanstd(n[::2], 1, ddof=1) | np.nanstd(n, correction=1)",
    "nansum": "np.nansum(n, 0) | np.nansum(n, where=n > 0)",
    "nanvar": "np.nanvar(n[::2], axis=1) | np.nanvar(n, where=n < 7, mean=3.0)",
    "ndim": "np.ndim(t)",
    "nonzero": "np.nonzero(m, size=4) => np.nonzero(m)",
    "ones": "np.ones(3) + z",
    "ones_like": "np.ones_like(x)",
    "outer": "np.outer(v, z)",
    "packbits": "np.packbits(m) | np.packbits(k, axis=0) | np.packbits(m, bitorder='little')",
    "pad": "np.pad(x, 1) | np.pad(v, (1, 2), mode='reflect')",
    "partition": "np.partition(v, 2)[2]",
    "percentile": "np.percentile(x, 30, axis=1) | np.percentile(x, [10, 90], method='weibull')",
    "piecewise": "np.piecewise(v, [v < 0, v >= 2], [lambda a: -a, 7.0, lambda a: a * a])",
    "poly": "np.poly(z) | np.poly(i) | np.poly(y[0].astype(np.float16))",
    "polyadd": "np.polyadd(z, v)",
    "polyder": "np.polyder(v) | np.polyder(v, 2)",
    "polydiv": "np.polydiv(v, z) | np.polydiv(z, v)",
    "polyfit": "np.polyfit(v, w, 2) | np.polyfit(z, x[:, :2], 1, w=z)",
    "polyint": "np.polyint(v) | np.polyint(v, 2, [1.0, 2.0])",
    "polymul": "np.polymul(z, v)",
    "polysub": "np.polysub(v, z)",
    "polyval": "np.polyval(z, x)",
    "prod": "np.prod(x, axis=1, keepdims=True)",
    "ptp": "np.ptp(x, axis=1)",
    "quantile": "np.quantile(x, 0.3) | np.quantile(x, z / 2, axis=0, keepdims=True)"
    " | np.quantile(x, 0.4, method='median_unbiased') | np.quantile(x, 0.4, method='midpoint')",
    "ravel": "np.ravel(x) | np.ravel(x, 'F')",
    "ravel_multi_index": "np.ravel_multi_index((i, i + 1), (3, 5))"
    " | np.ravel_multi_index((i, i + 4), (3, 5), mode=('raise', 'wrap'), order='F')",
    "real": "np.real(c)",
    "real_if_close": "np.real_if_close(x)",
    "repeat": "np.repeat(x, 2) | np.repeat(v, 3, axis=0)",
    "require": "np.require(x, np.float32, 'C')",
    "reshape": "np.reshape(x, (2, 6)) | np.reshape(x, shape=(4, 3), order='F')",
    "resize": "np.resize(v, (2, 5))",
    "result_type": "np.result_type(x, np.float32) == np.float64",
    "roll": "np.roll(v, 2) | np.roll(a=x, shift=(1, 2), axis=(0, 1))",
    "rollaxis": "np.rollaxis(t, 2)",
    "rot90": "np.rot90(x) | np.rot90(m=x, k=3)",
    "round": "np.round(x, 1)",
    "searchsorted": "np.searchsorted(np.sort(v), w, side='right')",
    "select": "np.select([v > 2, v < 0], [v, -v], 9.0)",
    "setdiff1d": "np.setdiff1d(v, w, size=1) => np.setdiff1d(v, w)",
    "setxor1d": "np.setxor1d(v, w, size=9, fill_value=9.0)[:3] => np.setxor1d(v, w)",
    "shape": "np.shape(x)",
    "shares_memory": "np.shares_memory(x, y)",
    "sinc": "np.sinc(x)",
    "size": "np.size(x, 1)",
    "sort": "np.sort(x, axis=0) | np.sort(c, axis=None)",
    "sort_complex": "np.sort_complex(c) | np.sort_complex(k) | np.sort_complex(v)",
    "split": "np.split(v, 3) | np.split(x, 2, axis=1)",
    "squeeze": "np.squeeze(x[None])",
    "stack": "np.stack([v, w], axis=1, dtype='f4', casting='same_kind')",
    "std": "np.std(x) | np.std(x, 0, ddof=1, where=x > -9)",
    "sum": "np.sum(x) | np.sum(x, 1, None, None, True) | np.sum(x, where=x > 0, initial=1.0)",
    "swapaxes": "np.swapaxes(t, 0, 2)",
    "take": "np.take(v, i) | np.take(x, i + 1, 1, None, 'clip') | np.take(v, i + 9, mode='wrap')",
    "take_along_axis": "np.take_along_axis(x, i[None] % 3, axis=1)",
    "tensordot": "np.tensordot(t, x, axes=([1, 2], [0, 1]))",
    "tile": "np.tile(A=v, reps=(2, 1))",
    "trace": "np.trace(s, offset=1)",
    "transpose": "np.transpose(t, (2, 0, 1))",
    "trim_zeros": "np.trim_zeros(np.round(v / 4))",
    "trapezoid": "np.trapezoid(v, dx=0.5) | np.trapezoid(x, axis=0)",
    "tri": "np.tri(3, 4, k=1) * x",
    "tril": "np.tril(s, -1)",
    "tril_indices_from": "np.tril_indices_from(s, 1)",
    "triu": "np.triu(s)",
    "triu_indices_from": "np.triu_indices_from(arr=s, k=1)",
    "union1d": "np.union1d(v, w, size=9)[:7] => np.union1d(v, w)",
    "unique": "np.unique(v, size=6)[:5] => np.unique(v)"
    " | np.unique(i, True, True, True, size=3) => np.unique(i, True, True, True)",
    "unique_all": "np.unique_all(i, size=3) => np.unique_all(i)",
    "unique_counts": "np.unique_counts(v, size=5) => np.unique_counts(v)",
    "unique_inverse": "np.unique_inverse(i, size=3) => np.unique_inverse(i)",
    "unique_values": "np.unique_values(i, size=3) => np.sort(np.unique_values(i))",
    "unpackbits": "np.unpackbits(k) | np.unpackbits(k, axis=1, count=-3, bitorder='little')"
    " | np.unpackbits(k, 0, 20)",
    "unravel_index": "np.unravel_index(i * 3, (3, 4)) | np.unravel_index(i, (3, 4), order='F')",
    "unstack": "np.unstack(x, axis=1)",
    "unwrap": "np.unwrap(v * 2) | np.unwrap(x * 5, axis=0, period=4) | np.unwrap(i * 3, period=4)"
    " | np.unwrap(v, 4.5, period=5.0) | np.unwrap(i * 3, period=5)"
    " | np.unwrap(k.astype(np.int32), period=7)",
    "vander": "np.vander(z) | np.vander(z, N=2, increasing=True)",
    "var": "np.var(x, 1, correction=1) | np.var(x, mean=0.0)",
    "vdot": "np.vdot(c, c)",
    "vsplit": "np.vsplit(x, 3)",
    "vstack": "np.vstack([x, y], dtype=np.float32)",
    "where": "np.where(x > 0, x, y)",
    "zeros": "np.zeros(3) + z",
    "zeros_like": "np.zeros_like(x)",
    # what writes, with its target made inside
    "copyto": "wrote(np.copyto, x, y)",
    "fill_diagonal": "wrote(np.fill_diagonal, s, 7.0)",
    "place": "wrote(np.place, v, m, z) | wrote(np.place, x, x > 0, [1, 2, 3])",
    "put": "wrote(np.put, v, [0, 3], [9.0, 8.0])",
    "put_along_axis": "wrote(np.put_along_axis, x, i[None, :3] % 3, 9.0, 1)",
    "putmask": "wrote(np.putmask, v, m, z)",
    # linear algebra
    "linalg.cholesky": "np.linalg.cholesky(s) | np.linalg.cholesky(s, upper=True)"
    " | np.linalg.cholesky(c @ np.conj(c.T) + np.eye(3))",
    "linalg.cond": "np.linalg.cond(s, 1) | np.linalg.cond(x) | np.linalg.cond(c, -2)"
    " | np.real(np.linalg.cond(c, np.inf))"
    " | np.linalg.cond(s, 'fro')",
    "linalg.cross": "np.linalg.cross(s, z)",
    "linalg.det": "np.linalg.det(s) | np.linalg.det(c)",
    "linalg.diagonal": "np.linalg.diagonal(t, offset=1)",
    "linalg.eig": "np.linalg.eig(c) | np.linalg.eig(c * 2).eigenvalues",
    "linalg.eigh": "np.linalg.eigh(s) | np.linalg.eigh(x[:, :3] + s).eigenvalues",
    "linalg.eigvals": "np.linalg.eigvals(c)",
    "linalg.eigvalsh": "np.linalg.eigvalsh(s) | np.linalg.eigvalsh(c, 'U')",
    "linalg.inv": "np.linalg.inv(s) | np.linalg.inv(c)",
    "linalg.lstsq": "np.linalg.lstsq(x.T, w[:4])[0] | np.linalg.lstsq(x.T, x.T * 2 + 1, 0.1)[3]",
    "linalg.matmul": "np.linalg.matmul(s, x)",
    "linalg.matrix_norm": "np.linalg.matrix_norm(t)",
    "linalg.matrix_power": "np.linalg.matrix_power(s, 3) | np.linalg.matrix_power(s, -2)",
    "linalg.matrix_rank": "np.linalg.matrix_rank(x) | np.linalg.matrix_rank(v)"
    " | np.linalg.matrix_rank(t, tol=0.5) | np.linalg.matrix_rank(t, rtol=0.5)",
    "linalg.matrix_transpose": "np.linalg.matrix_transpose(x)",
    "linalg.multi_dot": "np.linalg.multi_dot([s, x, x.T])",
    "linalg.norm": "np.linalg.norm(x) | np.linalg.norm(x, 1) | np.linalg.norm(x, axis=1, ord=3)"
    " | np.linalg.norm(x, 2) | np.linalg.norm(t, 'nuc', (0, 2)) | np.linalg.norm(c, -2)",
    "linalg.pinv": "np.linalg.pinv(t) | np.linalg.pinv(c, 0.3) | np.linalg.pinv(x, rtol=0.5)",
    "linalg.qr": "np.linalg.qr(x) | np.linalg.qr(t, mode='r') | np.linalg.qr(c, 'complete').R",
    "linalg.outer": "np.linalg.outer(v, z)",
    "linalg.slogdet": "np.linalg.slogdet(s)",
    "linalg.solve": "np.linalg.solve(s, z) | np.linalg.solve(c, z)",
    "linalg.svd": "np.linalg.svd(x) | np.linalg.svd(x, False) | np.linalg.svd(t, compute_uv=False)",
    "linalg.svdvals": "np.linalg.svdvals(c) | np.linalg.svdvals(k)",
    "linalg.tensordot": "np.linalg.tensordot(t, x, axes=([2], [1]))",
    "linalg.tensorinv": "np.linalg.tensorinv(s, ind=1)"
    " | np.linalg.tensorinv(np.eye(6).reshape(2, 3, 6) * z[0] + 0.1)",
    "linalg.tensorsolve": "np.linalg.tensorsolve(s, z)"
    " | np.linalg.tensorsolve((np.eye(6) * z[0] + 0.1).reshape(2, 3, 6), x[:2, :3])",
    "linalg.trace": "np.linalg.trace(s)",
    "linalg.vecdot": "np.linalg.vecdot(x, y)",
    "linalg.vector_norm": "np.linalg.vector_norm(x, axis=1, ord=1)",
    "lib.stride_tricks.sliding_window_view": "np.lib.stride_tricks.sliding_window_view(v, 3)",
    # Fourier transforms: small ones, composite and prime lengths, cut and filled
    "fft.fft": "np.fft.fft(v) | np.fft.fft(x, axis=0) | np.fft.fft(c, 70) | np.fft.fft(v, 67)"
    " | np.fft.fft(y, norm='ortho') | np.fft.fft(v, n=96, norm='forward')",
    "fft.ifft": "np.fft.ifft(c) | np.fft.ifft(v, 130) | np.fft.ifft(v, norm='forward')",
    "fft.rfft": "np.fft.rfft(v) | np.fft.rfft(x, 5, 0)",
    "fft.irfft": "np.fft.irfft(c) | np.fft.irfft(y.astype(np.float16))"
    " | np.fft.irfft(c, 5) | np.fft.irfft(v, 7, norm='ortho')",
    "fft.hfft": "np.fft.hfft(c) | np.fft.hfft(v, norm='forward')",
    "fft.ihfft": "np.fft.ihfft(v)",
    "fft.fftn": "np.fft.fftn(t) | np.fft.fftn(t, (2, 6), axes=(2, 0))",
    "fft.ifftn": "np.fft.ifftn(c)",
    "fft.rfftn": "np.fft.rfftn(t)",
    "fft.irfftn": "np.fft.irfftn(t + 1j, (3, 5), (0, 1))",
    "fft.fft2": "np.fft.fft2(t)",
    "fft.ifft2": "np.fft.ifft2(t, norm='ortho')",
    "fft.rfft2": "np.fft.rfft2(t)",
    "fft.irfft2": "np.fft.irfft2(c)",
    "fft.fftshift": "np.fft.fftshift(v) | np.fft.fftshift(x, axes=1)",
    "fft.ifftshift": "np.fft.ifftshift(s)",
    # what NumPy makes complex where it must
    "lib.scimath.sqrt": "np.emath.sqrt(c)",
    "lib.scimath.log": "np.emath.log(c)",
    "lib.scimath.log2": "np.emath.log2(c)",
    "lib.scimath.log10": "np.emath.log10(c)",
    "lib.scimath.logn": "np.emath.logn(2.0, c)",
    "lib.scimath.power": "np.emath.power(c, 3)",
    "lib.scimath.arccos": "np.emath.arccos(c)",
    "lib.scimath.arcsin": "np.emath.arcsin(c)",
    "lib.scimath.arctanh": "np.emath.arctanh(c)",
    # elements that are counted when it runs
    "extract": "np.sum(np.extract(m, v))",
}

# What is never about arrays of a graph: in a compiled function it runs while that is traced.
FIELDS = np.array([(1, 2.0), (3, 4.5)], dtype=[("a", int), ("b", float)])
OTHER = np.array([(1, 5.0), (3, 6.0)], dtype=[("a", int), ("c", float)])
DAYS = np.array(["2026-11-20", "2026-11-22"], dtype="M8[D]")
KNOWN: dict[str, str] = {
    "busday_count": "np.busday_count(DAYS, DAYS + 9)",
    "busday_offset": "np.busday_offset(DAYS, 2, roll='forward').astype(int)",
    "datetime_as_string": "len(np.datetime_as_string(DAYS))",
    "frombuffer": "np.frombuffer(b'abcdefgh', np.uint8)",
    "fromfile": "np.fromfile(FILE, np.uint8)[:3]",
    "fromiter": "np.fromiter(range(3), float)",
    "fromstring": "np.fromstring('1 2 3', sep=' ')",
    "genfromtxt": "np.genfromtxt(['1 2', '3 4'])",
    "is_busday": "np.is_busday(DAYS)",
    "loadtxt": "np.loadtxt(['1 2', '3 4'])",
    "lib.recfunctions.append_fields": (
        "rf.append_fields(FIELDS, 'c', [5.0, 6.0], usemask=False)['c']"
    ),
    "lib.recfunctions.apply_along_fields": "rf.apply_along_fields(np.mean, FIELDS)",
    "lib.recfunctions.assign_fields_by_name": "assigned(rf.assign_fields_by_name)['b']",
    "lib.recfunctions.drop_fields": "rf.drop_fields(FIELDS, 'b')['a']",
    "lib.recfunctions.find_duplicates": "rf.find_duplicates(np.ma.array(FIELDS))['a'].data",
    "lib.recfunctions.join_by": "rf.join_by('a', FIELDS, OTHER, usemask=False)['c']",
    "lib.recfunctions.merge_arrays": "rf.merge_arrays((FIELDS['a'], FIELDS['b']))['f1']",
    "lib.recfunctions.rec_append_fields": "rf.rec_append_fields(FIELDS, 'c', [5.0, 6.0])['c']",
    "lib.recfunctions.rec_drop_fields": "rf.rec_drop_fields(FIELDS, 'b')['a']",
    "lib.recfunctions.rec_join": "rf.rec_join('a', FIELDS, OTHER)['c']",
    "lib.recfunctions.recursive_fill_fields": (
        "rf.recursive_fill_fields(FIELDS, np.zeros(3, FIELDS.dtype))['a']"
    ),
    "lib.recfunctions.rename_fields": "rf.rename_fields(FIELDS, {'a': 'z'})['z']",
    "lib.recfunctions.repack_fields": "rf.repack_fields(FIELDS)['b']",
    "lib.recfunctions.require_fields": "rf.require_fields(FIELDS, [('b', 'f4')])['b']",
    "lib.recfunctions.stack_arrays": "rf.stack_arrays((FIELDS, FIELDS), usemask=False)['b']",
    "lib.recfunctions.structured_to_unstructured": "rf.structured_to_unstructured(FIELDS)",
    "lib.recfunctions.unstructured_to_structured": (
        "rf.unstructured_to_structured(np.ones((2, 2)), FIELDS.dtype)['b']"
    ),
}

# Of those that traced arrays cannot have: how they are called.
REFUSED: dict[str, str] = {
    "save": "np.save('file', x)",
    "savetxt": "np.savetxt('file', x)",
    "savez": "np.savez('file', x)",
    "savez_compressed": "np.savez_compressed('file', x)",
}


def assigned(function: Any) -> Any:
    made = np.zeros(2, FIELDS.dtype)
    function(made, FIELDS)
    return made


def wrote(function: Any, target: Any, *args: Any) -> Any:
    made = target.copy()
    function(made, *args)
    return made


def calls(name: str, module: Any, side: int = 0) -> list[Any]:
    """The calls of a function, each as a function of the arrays; side 1 is what NumPy says."""
    scope = {"np": module, "wrote": wrote}
    texts = [text.split(" => ")[side if " => " in text else 0] for text in CALLS[name].split(" | ")]
    return [eval(f"lambda {', '.join(ARRAYS)}: {text}", scope) for text in texts]


def overridable() -> dict[str, Any]:
    return {numpy_name(f): f for f in get_overridable_numpy_array_functions()}


def check(got: Any, want: Any, where: str) -> None:
    if isinstance(want, list | tuple):
        assert len(got) == len(want) and isinstance(got, list | tuple), where
        for one, other in zip(got, want):
            check(one, other, where)
        return
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (where, got, want)
    rtol = {2: 2e-3, 4: 3e-6}.get(want.real.dtype.itemsize, 1e-11)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=where)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("letter", sorted({name[0] for name in CALLS}))
def test_calls_do_what_numpy_does(letter: str) -> None:
    """On arrays, and all those with this first letter in one compiled function."""
    names = [name for name in CALLS if name[0] == letter]
    each = [(name, call) for name in names for call in calls(name, np)]
    wanted = [call(**ARRAYS) for name in names for call in calls(name, np, 1)]
    eager = [call(**ARRAYS) for name in names for call in calls(name, gnp)]

    def together(arrays: dict[str, Any]) -> Any:
        return [call(**arrays) for _, call in each]

    traced = gc.compile(together, opt=0)(ARRAYS)
    for (name, _), one, other, want in zip(each, eager, traced, wanted, strict=True):
        check(one, want, f"graphc.numpy.{name}")
        check(other, want, f"traced {name}")


@pytest.mark.parametrize("name", sorted(set(overridable()) - set(CALLS)))
def test_others_say_why_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no place in the table is refused on traced arrays, with a reason, and not done."""
    monkeypatch.chdir(tmp_path)
    text = REFUSED.get(name, "function(x)")
    call = eval(f"lambda x: {text}", {"np": np, "function": overridable()[name]})
    with pytest.raises(GraphError, match=r"not for traced arrays: it|depends on data"):
        gc.compile(call)(ARRAYS["x"])
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore")
def test_what_is_known_is_known_in_compiled_functions() -> None:
    scope = {"FIELDS": FIELDS, "OTHER": OTHER, "DAYS": DAYS, "assigned": assigned, "FILE": __file__}
    for name, text in KNOWN.items():
        call = eval(f"lambda x: x * ({text})", {"np": np, "rf": np.lib.recfunctions, **scope})
        check(gc.compile(call, opt=0)(np.float64(2)), call(np.float64(2)), name)


def test_the_table_is_long_enough() -> None:
    there = set(overridable())
    assert not set(CALLS) - there, set(CALLS) - there
    assert not set(KNOWN) - there
    assert len(CALLS) + len(KNOWN) >= 290


def test_the_square_of_bools_is_narrow_as_numpys_is() -> None:
    x = np.array([True, False])
    for function in (lambda x: x**2, lambda x: x**3, lambda x: x**2.0, lambda x: 2**x):
        wanted, made = function(x), gc.compile(function)(x)
        assert made.dtype == wanted.dtype
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x + 300, OverflowError),
        (lambda x: operator.iadd(x, 1.5), TypeError),
        (lambda x: operator.itruediv(x, 2), TypeError),
        (lambda x: x.astype("nonsense"), TypeError),
        (lambda x: operator.iadd(x, np.ones((2, 3), np.int8)), ValueError),
    ],
)
def test_refused_writes_are_of_numpys_classes(function: Any, kind: type[Exception]) -> None:
    x = np.arange(3, dtype=np.int8)
    for run in (function, gc.compile(function)):
        with pytest.raises(kind) as found:
            run(x.copy())
    assert isinstance(found.value, GraphError)
