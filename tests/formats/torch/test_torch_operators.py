"""Operators of ATen beside PyTorch: as exported, and as torch.export decomposes them.

Every family is one module, exported once; what comes of it runs on the reference interpreter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed

import graphc as gc
from graphc.formats.torch.live import array_of, from_exported

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

from torch_programs import Functions, Interpreted  # noqa: E402


def arithmetic(a: Any, b: Any, i: Any, j: Any, m: Any) -> list[Any]:
    """Promotion, divisions and roundings, where PyTorch and NumPy differ."""
    p = a.abs() + 0.1
    return [
        *(a + b, a + 1.5, i + 1.5, i + a, i * m, m + m, 3 - a, 1 - i, a * b.double().sum()),
        *(i / j, i // j, i % j, torch.fmod(i, j), a % b, torch.div(i, j, rounding_mode="trunc")),
        *(torch.div(a, b, rounding_mode="floor"), torch.add(a, b, alpha=2.5), a**2, p**0.5, i**2),
        *(2**a, p**-2, torch.atan2(a, i), a.sigmoid(), j.sqrt(), i.exp(), a.round(), a.frac()),
        *(a.clamp(-0.5, 0.5), i.clamp(-0.5, 0.5), torch.clamp(a, b, b + 1), torch.maximum(a, b)),
        *(torch.where(m, a, 0.0), torch.where(m, i, 1.5), a.masked_fill(m, -1e9), a > i, a == b),
        *(torch.lerp(a, b, 0.3), torch.addcmul(a, b, p, value=0.5), torch.xlogy(p, p), i & j, ~i),
        *(a.double(), a.int(), (a.bfloat16() * 2).float(), i.to(torch.bool), a.erf(), p.lgamma()),
        *(F.gelu(a), F.gelu(a, approximate="tanh"), F.elu(a, 0.5), F.softplus(a, 2), F.silu(a)),
        *(torch._weight_norm(a, b[:, :1], 0), F.triplet_margin_loss(a, b, a - 1, swap=True)),
        *(F.leaky_relu(a), F.hardswish(a), F.hardsigmoid(a), F.glu(a), F.logsigmoid(a)),
    ]


def shapes(a: Any, x: Any, i: Any) -> list[Any]:
    return [
        *(a.view(2, 6), a.flatten(), a.unflatten(1, (2, 2)), a.T, a[:, None].expand(3, 5, 4)),
        *(a[1:], a[:, ::2], a[:, 1], a[-1], a[..., -2:], a.select(0, -1), x.movedim(1, -1)),
        *(*a.split(2, 1), *a.chunk(3, 0), *a.split([1, 3], 1), *torch.tensor_split(a, 3, 1)),
        *(a.diagonal(), torch.diag(a[0]), a.tril(), a.triu(1), x.unfold(-1, 3, 2)),
        *(torch.cat([a, a], -1), torch.cat([a, i]), torch.stack([a, a], 1), a.repeat(2, 2, 1)),
        *(a.repeat_interleave(2, 1), a.flip(0), a.roll((1, 2), (0, 1)), a.roll(3)),
        *(
            F.pad(x, (1, 2, 0, 1), value=3.0),
            F.pad(x, (1, 1, 2, 2), mode="replicate"),
            F.pad(a, (-1, 0)),
        ),
        *(F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)),
        *(torch.arange(1, 10, 2), torch.arange(0, 1, 0.25), torch.full((2,), 2.5), torch.eye(3)),
        *(a.new_zeros(2), torch.full_like(a, 2), torch.tensor([1, 2]), torch.linspace(0, 1, 5)),
    ]


def reductions(a: Any, i: Any) -> list[Any]:
    return [
        *(a.sum(), a.sum((0, 1), keepdim=True), a.mean(1), a.prod(1), a.amax(1), a.var(1), a.std()),
        *(*torch.var_mean(a, 1), a.logsumexp(1), a.norm(), torch.linalg.vector_norm(a, 1, dim=0)),
        *(a.max(), *a.max(1), *a.min(0), a.argmax(), a.argmin(0, keepdim=True), (a > 0).all(1)),
        *(i.sum(), i.prod(0), i.float().mean(), torch.count_nonzero(i, 1), a.any()),
        *(a.cumsum(1), *a.cummax(1), a.logcumsumexp(1), a.diff(), i.cumsum(0)),
        *(*a.sort(1), *a.sort(0, descending=True), *a.topk(2), *a.median(1), *a.kthvalue(2, 1)),
        *(
            a.quantile(0.3, dim=1),
            a.quantile(0.7),
            a.quantile(0.5, 0, True, interpolation="higher"),
        ),
        *(a.softmax(1), a.log_softmax(0), torch.bucketize(a, torch.arange(3.0) - 1)),
        *(
            torch.searchsorted(a.sort(1)[0], a - 0.1),
            torch.searchsorted(a.sort(1)[0], a, right=True),
        ),
    ]


def written(a: Any, i: Any, m: Any) -> list[Any]:
    """Indices, and what is written in place, through views, too."""
    made = [a[i], a[:, i], a[i, i], a[i[:, None], i], a.index_select(1, i), a[m], m.nonzero()]
    places = torch.tensor([[0, 2, 1, 3], [3, 1, 0, 2], [1, 0, 3, 2]])
    made += [a.gather(1, places), a.scatter(1, places, a * 2), a.scatter_add(1, places, a)]
    made += [a.scatter_reduce(1, places, a, reduce="amax"), a.index_add(0, i, a, alpha=2)]
    for how in ("sum", "prod", "amax", "amin", "mean"):
        made.append(a.scatter_reduce(1, places, a * 2, reduce=how, include_self=False))
    made.append(a.scatter_reduce(1, places, a, reduce="mean"))
    starts = torch.tensor([0, 1, 1])
    made += [F.embedding_bag(i, a, starts, mode=how) for how in ("sum", "mean", "max")]
    made += [F.embedding_bag(places % 3, a, per_sample_weights=a, mode="sum")]
    made += [a.slice_scatter(a[:, :2], 1, 0, 4, 2), a.select_scatter(a[0], 0, 1)]
    b, c, d = a.clone(), a.clone(), a.clone()
    b[i] = 0
    b[:, 1] = 2.0
    c[m] = -1
    c[1:, ::2] += 1
    c.index_put_((i,), a, accumulate=True)
    d.t()[0].mul_(3)
    d.view(-1)[2:5].zero_()
    d[0, 0] = 9.0
    return [*made, b, c, d]


def images(x: Any, w: Any, v: Any, g: Any) -> list[Any]:
    return [
        *(F.conv2d(x, w, stride=2, padding=1), F.conv2d(x, w, padding="same", dilation=2)),
        *(F.conv2d(x, w[:, :2], groups=2), F.conv_transpose2d(x, v, stride=2, padding=1)),
        *(F.conv2d(x[0], w), F.conv1d(x[:, :, 0], w[..., 0])),
        *(F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True), F.avg_pool2d(x, 2)),
        *(*F.max_pool2d(x, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 3, 2, 1, True, False)),
        *(F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, 2)),
        *(
            F.unfold(x, 3, padding=1, dilation=2),
            F.fold(F.unfold(x, 2, stride=2), (8, 8), 2, stride=2),
        ),
        *(F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 11), mode="bilinear")),
        *(F.interpolate(x, size=9, mode="bilinear", align_corners=True), F.instance_norm(x)),
        *(F.interpolate(x, scale_factor=1.7, mode="bicubic"), F.group_norm(x, 2)),
        *(F.interpolate(x, scale_factor=1.3, mode="nearest-exact"), F.local_response_norm(x, 3)),
        *(F.grid_sample(x, g, align_corners=False), F.layer_norm(x, (8,)), F.rms_norm(x, (8,))),
    ]


def uneven(x: Any, v: Any) -> list[Any]:
    """Windows of different sizes, and elements that go back where they were."""
    wide = x[:, :, :, :7]
    read, places = F.max_pool2d(x, 2, return_indices=True)
    cube = x.view(2, 4, 4, 4, 4)
    return [
        *F.adaptive_max_pool2d(wide, (3, 5), return_indices=True),
        *F.adaptive_max_pool2d(wide[0], 3, return_indices=True),
        *F.adaptive_max_pool1d(x[0], 3, return_indices=True),
        *(F.adaptive_max_pool3d(cube, 3), F.max_unpool2d(read, places, 2)),
        *(
            F.max_unpool2d(read, places, 2, output_size=(8, 9)),
            F.conv_transpose2d(x[0], v[:, :3, :3][:, None]),
        ),
        *(F.avg_pool2d(x, 3, 2, 1, divisor_override=5), F.rrelu(x)),
        *(F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=2), F.bilinear(x, x, v)),
    ]


def losses(a: Any, b: Any, labels: Any, w: Any) -> list[Any]:
    """Weights, smoothing, chances as targets, margins, in every reduction."""
    made, chances = [], b.softmax(1)
    for how in ("none", "mean", "sum"):
        for smooth in (0.0, 0.2):
            made += [F.cross_entropy(a, labels, w, None, 1, None, how, smooth)]
            made += [F.cross_entropy(a, chances, w, reduction=how, label_smoothing=smooth)]
        made += [F.binary_cross_entropy_with_logits(a, chances, w, None, None, how, w + 1)]
        made += [F.multi_margin_loss(a, labels, 2, 0.5, w, None, None, how)]
        made += [F.poisson_nll_loss(a, b.exp(), full=full, reduction=how) for full in (False, True)]
        made += [F.poisson_nll_loss(a.exp(), b.exp(), log_input=False, reduction=how)]
        made += [F.cosine_embedding_loss(a, b, labels - 1, 0.2, reduction=how)]
    made += [F.multi_margin_loss(a[0], labels[0]), F.pdist(a), F.pdist(a, 1), F.pdist(a[:1])]
    return made


def frames(x: Any) -> list[Any]:
    """Spectra of frames and the signals that they come from."""
    hann, short = torch.hann_window(16), torch.hann_window(12)
    made = torch.stft(x, 16, window=hann, return_complex=True)
    wide = torch.stft(x, 16, 4, 12, short, False, onesided=False, return_complex=True)
    unit = torch.stft(x[0], 16, 8, window=hann, normalized=True, return_complex=True)
    fft, whole = torch.fft, (4 * x).to(torch.int32)
    return [
        *(made, wide, unit, torch.istft(made, 16, window=hann), made.abs()),
        torch.istft(unit, 16, 8, window=hann, normalized=True, length=60),
        *(fft.fft(whole), fft.rfft2(whole), fft.ifftn(whole), fft.rfft(whole > 0)),
        *(t(x, norm=n) for t in (fft.ihfft2, fft.ihfftn) for n in (None, "ortho", "forward")),
        *(t(made, norm=n) for t in (fft.hfft2, fft.hfftn) for n in (None, "ortho", "forward")),
        *(fft.hfft2(made, s=(5, 9)), fft.ihfftn(made.abs(), s=(6, 8), dim=(1, 2))),
        *(x[:, :8] * fft.fftfreq(8, 0.5), x[:, :5] * fft.rfftfreq(8), fft.fftshift(x)),
    ]


def factors(a: Any, b: Any) -> list[Any]:
    linalg, flat = torch.linalg, b[:, 0]
    square = a @ a.mT + torch.eye(4)
    packed, pivots = linalg.lu_factor(a)
    low = linalg.cholesky(square)
    return [
        *(linalg.inv(a), linalg.det(a), *linalg.slogdet(a), *linalg.inv_ex(a)),
        *(linalg.solve(a, b), linalg.solve(a[0], flat), linalg.solve(a, b.T, left=False)),
        *(packed, pivots, *linalg.lu(a), *torch.lu_unpack(packed, pivots)),
        *(linalg.lu_solve(packed, pivots, b), linalg.lu_solve(packed, pivots, b, adjoint=True)),
        *(linalg.lu_solve(packed, pivots, b.T, left=False), linalg.cholesky(square, upper=True)),
        *(low, torch.cholesky_solve(b, low[0]), torch.cholesky_inverse(low)),
        *(linalg.solve_triangular(a, b, upper=True), torch.triangular_solve(b, a[0])[0]),
        *(linalg.solve_triangular(a, b.T, upper=False, left=False, unitriangular=True),),
    ]


def counts(a: Any, i: Any) -> list[Any]:
    """Totals in the elements that are asked for, and elements counted by ranges."""
    kinds = (torch.int32, torch.int8, torch.float64)
    made = [t(i, dtype=k) for k in kinds for t in (torch.sum, torch.prod, torch.nansum)]
    made += [t(i, 0, dtype=k) for k in kinds for t in (torch.cumsum, torch.cumprod)]
    ranges = (a, 5), (a, 7, -1, 0.5), (a * 0 + 3, 4), (i.float(), 4, 0, 3)
    return [*made, *(torch.histc(*given) for given in ranges)]


def numbers(a: Any) -> list[Any]:
    """Operators along the axis that PyTorch sees in a number."""
    x = a[0, 0]
    made = [x.softmax(0), x.log_softmax(-1), x.logcumsumexp(0), x.cumsum(0), x.nanmedian()]
    parts = x.topk(1), x.kthvalue(1), x.cummax(0), x.cummin(0), x.median(0), x.mode(), x.sort()
    return [*made, *(value for pair in parts for value in pair)]


def ordered(a: Any, i: Any) -> list[Any]:
    """Medians around NaN, what is met most often, histograms, and counted repeats."""
    gaps = a.clone()
    gaps[0, 1:3] = torch.nan
    gaps[1, :3] = torch.nan
    parts = gaps.median(1), gaps.nanmedian(0, True), gaps.nanmedian(1), i.mode(1), i.mode(0, True)
    rows, edges = torch.histogram(a, 4, range=(-1.0, 1.0), density=True)
    return [
        *(value for pair in parts for value in pair),
        *(gaps.median(), gaps.nanmedian(), rows, edges, *torch.frexp(a)),
    ]


def placed(a: Any, i: Any, x: Any) -> list[Any]:
    """Writes along diagonals, by lists of places that repeat, and in the order of a mask."""
    places, rows = torch.tensor([2, 0, 2]), a[:, :3]
    listed, starts = torch.tensor([0, 1, 2, 1, 1, 2]), torch.tensor([0, 2, 5])
    bags = [
        F.embedding_bag(listed, a, starts, mode=how, padding_idx=1)
        for how in ("sum", "mean", "max")
    ]
    reduced = [
        v.index_reduce(1, places, w, how, include_self=own)
        for v, w in ((a, rows), (i, i[:, :3]))
        for how in ("prod", "mean", "amax", "amin")
        for own in (True, False)
    ]
    return [
        *(*bags, a.round().sign(), (a / 0 * 0).sign(), (-a * 0).angle(), i.round()),
        *(*reduced, a.put(places, rows[0]), a.put(places, rows[0], accumulate=True)),
        *(torch.diagonal_scatter(x, x[:, :, 0, :7], -1, 2, 3),),
        *(torch.diagonal_scatter(a, a[0, :2], 2), torch.linalg.pinv(a, atol=0.5, rtol=0.1)),
        *(torch.linalg.pinv(a), torch.pinverse(a.mT, 1e-3)),
    ]


def chances(x: Any) -> list[Any]:
    """Functions of torch.special, far out, too, and polynomials."""
    special, far = torch.special, x * 20
    inside, part = x.tanh(), x.sigmoid()
    made = [special.entr(x), special.erfcx(x), special.erfcx(far.abs()), special.log_ndtr(far)]
    made += [special.ndtr(x), special.ndtri(part), special.psi(part), special.gammaln(part)]
    made += [special.sinc(x), special.i0(x), special.logsumexp(x, 1), special.expit(x)]
    made += [special.erfc(x), special.logit(part), special.xlogy(part, part), special.exp2(x)]
    made += [special.i0e(far), special.i1(x), special.i1e(far), special.modified_bessel_i1(x)]
    made += [special.spherical_bessel_j0(x), special.multigammaln(part + 1, 3), special.airy_ai(x)]
    made += [special.bessel_j0(far), special.bessel_j1(far), special.modified_bessel_k0(part)]
    made += [special.bessel_y0(part), special.bessel_y1(part), special.modified_bessel_k1(part)]
    made += [special.scaled_modified_bessel_k0(part), special.scaled_modified_bessel_k1(part)]
    kinds = ("t", "u", "v", "w")
    made += [getattr(special, f"chebyshev_polynomial_{k}")(inside, 4) for k in kinds]
    made += [getattr(special, f"shifted_chebyshev_polynomial_{k}")(part, 4) for k in kinds]
    made += [special.hermite_polynomial_h(x, 3), special.hermite_polynomial_he(x, 4)]
    made += [special.laguerre_polynomial_l(x, 3), special.legendre_polynomial_p(inside, 3)]
    return [*made, special.legendre_polynomial_p(inside, 0), special.laguerre_polynomial_l(x, 1)]


def experts(x: Any, w: Any, offs: Any) -> list[Any]:
    """Rows by the matrix of their group, one of which is empty; sums over groups."""
    x, w = x.bfloat16(), w.bfloat16()
    by_rows, of_groups = torch._grouped_mm(x, w, offs=offs), torch._grouped_mm(w.mT, w)
    return [by_rows.float(), of_groups.float(), torch._grouped_mm(x.t(), x, offs=offs).float()]


def sequences(lstm: Any, gru: Any, heads: Any, x: Any, labels: Any) -> list[Any]:
    q = x[:, None]
    made, (h, c) = lstm(x)
    return [
        *(made, h, c, *gru(x), heads(x, x, x)[0], F.scaled_dot_product_attention(q, q, q)),
        *(F.scaled_dot_product_attention(q, q, q, is_causal=True), torch.bmm(x, x.mT)),
        *(F.scaled_dot_product_attention(q, q, q, x[0] @ x[0].T > 0), F.linear(x, x[0])),
        *(torch.einsum("bij,bkj->bik", x, x), torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5)),
        *(F.embedding(labels, x[0]), F.one_hot(labels, 7), F.cross_entropy(x[:, 0], labels)),
        *(
            F.nll_loss(x[:, 0].log_softmax(1), labels),
            F.mse_loss(x, x * 2),
            F.smooth_l1_loss(x, -x),
        ),
        *(F.cross_entropy(x[:, 0], labels, label_smoothing=0.1), F.huber_loss(x, -x)),
    ]


def graphs(a: Any) -> list[Any]:
    loops = torch._higher_order_ops
    count, power = loops.while_loop(
        lambda k, x: k < 5, lambda k, x: (k + 1, x * 1.5), (torch.tensor(0), a)
    )
    branch = torch.cond(a.sum() > 0, lambda x: x + 1, lambda x: x * 2, (a,))
    total, rows = loops.scan(lambda c, r: (c + r, c * r), a[0], a, dim=0)
    with torch.no_grad():
        half = a / 2
    return [count, power, branch, total, rows, half * 3]


def windows() -> list[Any]:
    return [
        *(torch.hann_window(7), torch.hann_window(6, periodic=False), torch.hann_window(1)),
        *(torch.hamming_window(5), torch.hamming_window(6, True, 0.6, 0.4)),
        *(torch.blackman_window(5), torch.bartlett_window(6), torch.kaiser_window(6, False, 3.0)),
    ]


def spectra(a: Any) -> list[Any]:
    """Values, and what does not depend on the signs of vectors."""
    square, linalg, fft = a[:, :3] + 2 * torch.eye(3), torch.linalg, torch.fft
    q, r = linalg.qr(a)
    u, s, v = linalg.svd(a, full_matrices=False)
    w, x = linalg.eigh(square)
    half = fft.rfft(a)
    return [
        *(q @ r, r.abs(), s, (u * w) @ v, (x * w) @ x.mT, linalg.svdvals(a), linalg.pinv(a)),
        *(linalg.eigvalsh(square), linalg.matrix_exp(square), linalg.matrix_norm(a, "nuc")),
        *(
            linalg.norm(a),
            linalg.norm(a, dim=1),
            linalg.norm(a, ord=1, dim=(0, 1)),
            square.logdet(),
        ),
        *(a[0, 0] * w for w in windows()),
        *(half, fft.irfft(half, 5), fft.fft(a, norm="ortho"), fft.ifft(a, 3, 0), fft.fftn(a)),
        *(fft.irfft2(half, norm="forward"), fft.fftshift(a, 1), fft.hfft(half), fft.rfft2(a)),
    ]


def joined(a: Any, b: Any, i: Any, x: Any) -> list[Any]:
    """What torch.export leaves whole, although PyTorch makes it of other operators."""
    rows, pad = a[0], torch.nn.utils.rnn.pad_sequence
    wide = a.clone().resize_(2, 5)  # as many as there are, or fewer; a view where it is no copy
    wide.add_(1)
    return [
        *(torch.atleast_1d(a.sum()), torch.atleast_2d(rows), torch.atleast_3d(rows)),
        *(torch.atleast_3d(a), *torch.atleast_2d(rows, a), torch.block_diag(a, rows, i)),
        *(torch.column_stack((a, i, a[:, 0])), torch.dstack((a, i)), torch.row_stack((a, rows))),
        *(torch.cartesian_prod(rows, b[0], a[:, 0]), torch.cartesian_prod(rows), rows.ravel()),
        *(
            *torch.hsplit(a, 2),
            *torch.vsplit(a, [1, 1]),
            *torch.dsplit(x, 4),
            *torch.hsplit(rows, 2),
        ),
        *(torch.diagflat(a), torch.diagflat(rows, -1), pad([a, b[:1], a[:0]], padding_value=2.5)),
        *(pad([a[:2], b], batch_first=True, padding_side="left"), a.sum_to_size(4), wide, a.mH),
        *(
            a.clone().fill_diagonal_(7),
            torch.cat([a, b])[:, :2].clone().fill_diagonal_(7, wrap=True),
        ),
        *(torch.linalg.diagonal(x), torch.complex(a, b).mH, torch.complex(a, b).adjoint() * 2),
        *(
            a.sum_to_size(3, 1),
            i.sum_to_size(1, 4),
            torch.squeeze_copy(a[:1]),
            torch.unfold_copy(a, 1, 2, 1),
        ),
        *(a.clone().resize_(3), i.clone().resize_(4, 3), torch.linalg.matmul(a, b.T)),
    ]


def integrals(a: Any, b: Any, i: Any) -> list[Any]:
    p, at = a.abs() + 0.1, torch.tensor([0.0, 1.0, 1.5, 4.0])
    points, edges = torch.stack([a.ravel(), b.ravel()], 1), torch.tensor([-2.0, -0.5, 0.5, 2.0])
    counts, ends = torch.histogramdd(points, [3, 4])
    few, _ = torch.histogramdd(points, [2, 2], range=[-1, 1, -0.5, 1.5], density=True)
    heavy, _ = torch.histogramdd(points, [edges, edges], weight=p.ravel())
    nan, spoilt = float("nan"), a.clone()
    spoilt[:, 1] = nan
    return [
        *(torch.trapezoid(a), torch.trapezoid(i, dx=0.5, dim=0), torch.trapz(a, at), a.fix()),
        *(torch.trapezoid(a, b.cumsum(1)), torch.cumulative_trapezoid(a, at), a.absolute()),
        *(
            torch.cumulative_trapezoid(i, dim=0),
            *torch.gradient(a),
            *torch.gradient(a, spacing=2.0),
        ),
        *(*torch.gradient(a, dim=1, edge_order=2), *torch.gradient(a, spacing=(at[:3], at))),
        *(*torch.gradient(i, spacing=[0.5, 2.0], dim=[1, 0]), torch.isneginf(1 / (a * 0) * a)),
        *(torch.isposinf(i), torch.isreal(torch.complex(a, a.trunc())), torch.ldexp(a, i)),
        *(torch.ldexp(i, i), torch.special.xlog1py(p, p), torch.special.xlog1py(0 * p, p * nan)),
        *(torch.logspace(-1, 2, 4), torch.vander(a[0]), torch.vander(i[0], 3, increasing=True)),
        *(torch.linalg.vander(a, N=3), torch.linalg.vander(i), torch.negative(i), a.arctanh() < 0),
        *(spoilt.nanmean(), spoilt.nanmean(1, True), torch.nanquantile(spoilt, 0.3, dim=1)),
        *(torch.greater(a, b), a.less_equal(b), a.not_equal(i), (a + 9).arccosh(), a.arcsinh()),
        *(counts, *ends, few, heavy, torch.histogram(a, edges).hist, torch.logspace(0, 1, 3, 2.0)),
    ]


def lengths(a: Any, b: Any, x: Any) -> list[Any]:
    sign, linalg, scales = b.sign(), torch.linalg, torch.tensor([0.1, 0.02, 0.3, 0.05])
    low = torch.cat([a, 2 * a]) @ torch.ones(4, 5)  # of rank 1
    tall, wide = torch.linalg.lu_factor(x), torch.linalg.lu_factor(x.mT)
    losses = (F.hinge_embedding_loss, F.soft_margin_loss)
    return [
        *(f(a, sign, reduction=how) for f in losses for how in ("none", "mean", "sum")),
        *(F.margin_ranking_loss(a, b, sign, 0.3, reduction=how) for how in ("none", "mean")),
        *(F.pairwise_distance(a, b), F.pairwise_distance(a, b, 1.0, keepdim=True)),
        *(torch.norm_except_dim(x, 2, 0), torch.norm_except_dim(a, 1, -1), a.renorm(2, 0, 1.0)),
        *(x.renorm(1, 1, 0.5), linalg.vecdot(a, b), linalg.vecdot(a, b, dim=0), a.T.qr()[1].abs()),
        *(a.svd().S, a.svd(compute_uv=False).U, (a.svd().U * a.svd().S) @ a.svd().V.mT),
        *(linalg.matrix_rank(low), linalg.matrix_rank(x), linalg.matrix_rank(low, rtol=2.0)),
        *(linalg.matrix_rank(a @ a.T, hermitian=True), linalg.matrix_rank(a, atol=1.5)),
        *(linalg.tensorinv(x[:1, :4, :4].reshape(4, 2, 2), 1), *tall, *wide),
        *(linalg.tensorsolve(x[:1, :4, :4].reshape(2, 2, 4), b[:2, :2]), linalg.matrix_norm(a)),
        *(
            *linalg.lu_factor_ex(low)[:2],
            *linalg.lu(x),
            *linalg.lu_factor_ex(torch.zeros(2, 3))[:2],
        ),
        *(torch.conv_tbc(x, x[:3, :, :5].mT[:, :8], a[0].sum() + torch.zeros(5), 1),),
        *(torch.fake_quantize_per_tensor_affine(a, 0.1, 3, 0, 20),),
        *(torch.fake_quantize_per_tensor_affine(a, scales[0], sign[0, 0].int(), -8, 7),),
        *(torch.fake_quantize_per_channel_affine(a, scales, torch.arange(4).int(), 1, -8, 7),),
    ]


def slopes(x: Any, g: Any, weight: Any, places: Any) -> list[Any]:
    """Gradients of PyTorch's core operators, as graphs that learn hold them."""
    aten, flat = torch.ops.aten, x.reshape(2, 4, 64)
    every, first = [True, True, True], [True, False, False]
    mean, sharp = x.mean((2, 3), keepdim=True), 1 / x.std((2, 3), keepdim=True)
    scale = weight[0, :4]
    parts = x.reshape(2, 2, 128)
    level, width = parts.mean(2), 1 / parts.std(2)
    made = [
        *aten.native_layer_norm_backward(g, x, [8, 8], mean, sharp, weight, weight, every),
        *aten.native_group_norm_backward(g, x, level, width, scale, 2, 4, 64, 2, every),
        *aten.native_group_norm_backward(g, x, level, width, None, 2, 4, 64, 2, first)[:1],
    ]
    rows = flat[0, :3, :5]
    lost = [aten.embedding_dense_backward(rows, places, 7, k, k > 0) for k in (-1, 2)]
    return [v for v in (*made, *lost) if v is not None]


def families() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    torch.manual_seed(0)
    nn, r = torch.nn, torch.randn
    a, b, x = r(3, 4), r(3, 4), r(2, 4, 8, 8)
    i, j = torch.randint(-5, 6, (3, 4)), torch.randint(1, 6, (3, 4))
    lstm = nn.LSTM(8, 4, num_layers=2, bidirectional=True, batch_first=True)
    heads = nn.MultiheadAttention(8, 2, batch_first=True)
    labels, ends = torch.tensor([3, 1, 0]), torch.tensor([4, 4, 16], dtype=torch.int32)
    parts = (lstm, nn.GRU(8, 4, batch_first=True), heads)
    return {
        "arithmetic": (Functions(arithmetic), (a, b, i, j, a > 0)),
        "shapes": (Functions(shapes), (a, x, i)),
        "reductions": (Functions(reductions), (a, i)),
        "written": (Functions(written), (a, torch.tensor([0, 2, 1]), a > 0)),
        "images": (Functions(images), (x, r(6, 4, 3, 3), r(4, 3, 3, 3), r(2, 3, 3, 2).tanh())),
        "sequences": (Functions(sequences, *parts), (r(2, 5, 8), torch.tensor([3, 1]))),
        "graphs": (Functions(graphs), (a,)),
        "uneven": (Functions(uneven), (x, r(4, 8, 8))),
        "losses": (Functions(losses), (a, b, labels, r(4).abs() + 0.1)),
        "frames": (Functions(frames), (r(2, 64),)),
        "factors": (Functions(factors), (r(2, 4, 4) + 2 * torch.eye(4), r(4, 3))),
        "spectra": (Functions(spectra), (a,)),
        "chances": (Functions(chances), (a,)),
        "counts": (Functions(counts), (a, i)),
        "numbers": (Functions(numbers), (a,)),
        "ordered": (Functions(ordered), (a, i)),
        "placed": (Functions(placed), (a, i, x)),
        "experts": (Functions(experts), (r(16, 8).round(), r(3, 8, 8).round(), ends)),
        "joined": (Functions(joined), (a, b, i, r(2, 3, 4))),
        "integrals": (Functions(integrals), (a, b, i)),
        "lengths": (Functions(lengths), (a, b, r(3, 5, 4))),
        "slopes": (Functions(slopes), (x, r(2, 4, 8, 8), r(8, 8), torch.tensor([2, 0, 2]))),
    }


FORMS = ("as exported", "decomposed")
FAMILIES = (
    "arithmetic",
    "shapes",
    "reductions",
    "written",
    "images",
    "sequences",
    "graphs",
    "spectra",
    "uneven",
    "losses",
    "frames",
    "factors",
    "counts",
    "numbers",
    "ordered",
    "placed",
    "chances",
    "experts",
    "joined",
    "integrals",
    "lengths",
    "slopes",
)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "form"), crossed(FAMILIES, FORMS))
@pytest.mark.filterwarnings("ignore")
def test_operators_agree_with_pytorch(family: str, form: str) -> None:
    module, values = families()[family]
    program = torch.export.export(module.eval(), values)
    wanted = [array_of(t) for t in program.module()(*values)]
    taken = program if form == "as exported" else program.run_decompositions()
    made = Interpreted(from_exported(taken, family)).run([array_of(v) for v in values])
    assert len(made) == len(wanted)
    for k, (one, other) in enumerate(zip(made, wanted)):
        assert one.dtype == other.dtype and one.shape == other.shape, k
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=str(k))


def test_a_loss_of_listed_classes_is_that_of_the_module_as_exported() -> None:
    """PyTorch's decomposition of it counts classes that are not listed."""
    torch.manual_seed(0)
    x, listed = torch.randn(3, 4), torch.tensor([[1, 3, -1, 0], [2, -1, 1, 1], [0, 1, 2, 3]])
    for how in ("none", "mean", "sum"):
        module = torch.nn.MultiLabelMarginLoss(reduction=how)
        for values in ((x, listed), (x[0], listed[0])):
            wanted = module(*values).numpy()
            program = from_exported(torch.export.export(module, values), how)
            (made,) = Interpreted(program).run([array_of(v) for v in values])
            np.testing.assert_allclose(made, wanted, rtol=1e-5)


def test_an_operator_without_a_rule_may_say_why() -> None:
    class Factored(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.linalg.ldl_factor(x)

    program = torch.export.export(Factored(), (torch.eye(3),))
    with pytest.raises(gc.GraphError, match=r"ldl_factor.*: symmetric matrices are factored by"):
        Interpreted(from_exported(program, "m"))


@pytest.mark.parametrize("count", [0, 2, 5])
def test_a_mask_takes_what_there_is_of_a_source(count: int) -> None:
    x, mask = torch.zeros(2, 3), (torch.arange(6) < count).reshape(2, 3)
    values = (x, mask, torch.arange(1.0, count + 1))
    exported = torch.export.export(Functions(torch.masked_scatter), values)
    (made,) = Interpreted(from_exported(exported, "m")).run([array_of(v) for v in values])
    np.testing.assert_array_equal(made, torch.masked_scatter(*values))
