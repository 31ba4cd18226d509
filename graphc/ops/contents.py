"""Which names each family brings: of ops, functions, methods, and functions of NumPy.

Written by `python -m tools`."""

# fmt: off
OPS = {
    "autodiff.gradient_ops":
        "checkpoint custom_grad grad stop_gradient",
    "batching.vmap":
        "axis_gather axis_slice axis_sum vmap",
    "control.collectives":
        "all_gather all_reduce all_to_all reduce_scatter reduce_to to_all",
    "control.comm":
        "recv send",
    "control.control":
        "cond scan switch while",
    "control.host_calls":
        "assert callback print summary",
    "control.phased":
        "outlined phased",
    "control.pipelined":
        "pipeline",
    "control.resource":
        "resource",
    "control.stacks":
        "pop push stack",
    "control.state":
        "assign read",
    "control.transfer_casts":
        "exact truncate16 widen16",
    "index.dynamic":
        "dynamic_slice dynamic_update_slice",
    "index.gather":
        "gather in_range take_along",
    "index.scatter":
        "scatter",
    "index.update":
        "slice_update",
    "linalg.decompositions":
        "eig eigh eigvals eigvalsh qr svd svdvals",
    "linalg.digits":
        "byte_digits digits_matmul",
    "linalg.einsum":
        "einsum",
    "linalg.factor":
        "cholesky lu lu_solve solve",
    "linalg.few_bits":
        "packed_matmul",
    "linalg.fourier_ops":
        "fft irfft rfft",
    "linalg.matmul":
        "matmul",
    "linalg.matrix_exponential":
        "expm",
    "linalg.packing":
        "pack unpack",
    "linalg.sparse":
        "sparse_adjoint sparse_matmul sparse_sampled",
    "linalg.spectral":
        "least_squares pinv",
    "math.activations":
        "celu elu gelu hard_sigmoid hard_swish leaky_relu log_sigmoid mish relu relu6 selu silu "
        "softplus softsign",
    "math.casts":
        "angle bitcast cast complex conj imag narrow real",
    "math.comparison":
        "eq ge gt le lt ne",
    "math.composed":
        "gcd",
    "math.elementwise":
        "abs add copysign div floordiv fmod heaviside mul neg nextafter rem sign sub",
    "math.logic":
        "and isfinite isinf isnan not or popcount shl shr signbit where xor",
    "math.polygamma":
        "polygamma",
    "math.powers":
        "pow reciprocal rsqrt sqrt square",
    "math.rounding":
        "ceil floor fmax fmin maximum minimum rint trunc",
    "math.transcendental":
        "acos acosh asin asinh atan atan2 atanh cbrt cos cosh degrees digamma erf erfc erfinv exp "
        "exp2 expm1 hypot lgamma log log10 log1p log2 logaddexp logaddexp2 radians sigmoid sin "
        "sinc sinh tan tanh",
    "nn.attention":
        "attention attention_backward",
    "nn.conv":
        "conv",
    "nn.conv_adjoint":
        "conv_weights",
    "nn.conv_last":
        "conv_last",
    "nn.conv_windows":
        "conv_windows",
    "nn.conv_windows_last":
        "conv_windows_last",
    "nn.fused_attention":
        "fused_attention fused_attention_backward",
    "nn.normalisation":
        "batch_norm layer_norm rms_norm",
    "nn.pooling":
        "pool",
    "nn.pooling_adjoint":
        "pool_choice spread",
    "nn.pooling_tiles":
        "tile_choose tile_pool",
    "nn.softmax":
        "cross_entropy log_softmax softmax",
    "nn.winograd_ops":
        "winograd_input winograd_output winograd_weight",
    "random.random":
        "random_normal random_uniform",
    "random.threefry":
        "random_bits random_fold random_split",
    "record.structural":
        "barrier blocked call const fused item param tuple workspace",
    "reduce.cumulative":
        "cummax cummin cumprod cumsum",
    "reduce.occurrences":
        "occurrences",
    "reduce.recurrence":
        "recurrence",
    "reduce.reduce":
        "all any argmax argmin max mean min prod sum",
    "reduce.statistics":
        "logsumexp std var",
    "shape.concat":
        "concat",
    "shape.creation":
        "diagonal extent iota progression",
    "shape.padding":
        "pad",
    "shape.shape":
        "broadcast reshape transpose",
    "shape.slicing":
        "slice",
    "sort.search":
        "nonzero searchsorted",
    "sort.sorting":
        "argsort argsort_keys sort sort_keys topk topk_keys",
}
PUBLIC = {
    "control.transfer_casts":
        "exact truncate16 widen16",
    "index.dynamic":
        "dynamic_slice dynamic_update_slice",
    "index.gather":
        "take take_along_axis",
    "index.indexing":
        "getitem",
    "index.update":
        "index_update put_along_axis setitem",
    "linalg.einsum":
        "einsum",
    "linalg.factor":
        "linalg.cholesky linalg.det linalg.inv linalg.slogdet linalg.solve linalg.tensorinv "
        "linalg.tensorsolve",
    "linalg.fourier":
        "fft.fft fft.fft2 fft.fftfreq fft.fftn fft.fftshift fft.hfft fft.ifft fft.ifft2 fft.ifftn "
        "fft.ifftshift fft.ihfft fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftfreq "
        "fft.rfftn",
    "linalg.fourier_convolution":
        "fftconvolve",
    "linalg.matmul":
        "matmul",
    "linalg.matrix_exponential":
        "linalg.expm",
    "linalg.polynomials":
        "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval",
    "linalg.products":
        "convolve correlate cross dot inner kron linalg.cond linalg.cross linalg.diagonal "
        "linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.multi_dot linalg.outer "
        "linalg.tensordot linalg.trace matvec outer tensordot vdot vecdot vecmat",
    "linalg.spectral":
        "linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.lstsq linalg.matrix_rank "
        "linalg.pinv linalg.qr linalg.svd linalg.svdvals",
    "math.activations":
        "celu elu gelu glu hard_sigmoid hard_silu hard_swish leaky_relu log_sigmoid mish relu "
        "relu6 selu silu softplus softsign swish",
    "math.bessel":
        "i0",
    "math.casts":
        "angle astype complex conj conjugate imag real view",
    "math.comparison":
        "allclose array_equal equal greater greater_equal isclose less less_equal not_equal",
    "math.composed":
        "corrcoef cov diff ediff1d emath.arccos emath.arcsin emath.arctanh emath.log emath.log10 "
        "emath.log2 emath.logn emath.power emath.sqrt frexp gcd iscomplex iscomplexobj isreal "
        "isrealobj lcm ldexp modf nanargmax nanargmin nancumprod nancumsum packbits spacing "
        "trapezoid unpackbits unwrap",
    "math.elementwise":
        "abs absolute add copysign divide divmod fabs floor_divide fmod heaviside mod multiply "
        "negative nextafter positive remainder sign subtract true_divide",
    "math.logic":
        "bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or "
        "bitwise_right_shift bitwise_xor invert isfinite isinf isnan isneginf isposinf left_shift "
        "logical_and logical_not logical_or logical_xor nan_to_num right_shift signbit where",
    "math.polygamma":
        "polygamma",
    "math.powers":
        "float_power pow power reciprocal rsqrt sqrt square",
    "math.rounding":
        "around ceil clip fix floor fmax fmin maximum minimum rint round trunc",
    "math.transcendental":
        "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 "
        "atanh cbrt cos cosh deg2rad degrees digamma erf erfc erfinv exp exp2 expit expm1 hypot "
        "lgamma log log10 log1p log2 logaddexp logaddexp2 rad2deg radians sigmoid sin sinc sinh "
        "tan tanh",
    "nn.attention":
        "attention",
    "nn.conv":
        "conv conv_transpose",
    "nn.images":
        "affine_grid depth_to_space grid_sample interpolate resample roi_align sample_at "
        "space_to_depth",
    "nn.normalisation":
        "batch_norm group_norm instance_norm layer_norm local_response_norm rms_norm",
    "nn.pooling":
        "avg_pool max_pool min_pool",
    "nn.softmax":
        "binary_cross_entropy binary_cross_entropy_with_logits cross_entropy huber kl_divergence "
        "log_softmax mae mse nll softmax softmin",
    "nn.spectra":
        "dft stft",
    "reduce.counting":
        "bincount choose compress count_nonzero histogram histogram2d histogram_bin_edges "
        "histogramdd intersect1d isin one_hot select setdiff1d setxor1d union1d unique unique_all "
        "unique_counts unique_inverse unique_values",
    "reduce.cumulative":
        "cummax cummin cumprod cumsum cumulative_prod cumulative_sum",
    "reduce.quantiles":
        "nanpercentile nanquantile percentile quantile",
    "reduce.reduce":
        "all any argmax argmin max mean min prod sum",
    "reduce.statistics":
        "average logsumexp median nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar "
        "norm ptp std var vector_norm",
    "shape.concat":
        "concatenate",
    "shape.creation":
        "arange diag diagflat diagonal empty empty_like eye full full_like geomspace identity "
        "linspace logspace ones ones_like trace tri tril triu zeros zeros_like",
    "shape.editing":
        "block concat delete fill_diagonal gradient insert ix_ permute_dims place put putmask "
        "rollaxis sliding_window_view trim_zeros vander",
    "shape.manipulation":
        "append array_split atleast_1d atleast_2d atleast_3d column_stack dsplit dstack "
        "expand_dims flatten flip fliplr flipud hsplit hstack matrix_transpose meshgrid moveaxis "
        "ndim ravel repeat resize roll rot90 shape size split squeeze stack swapaxes tile unstack "
        "vsplit vstack",
    "shape.padding":
        "pad",
    "shape.shape":
        "broadcast_arrays broadcast_to reshape transpose",
    "sort.search":
        "argwhere digitize flatnonzero interp nonzero ravel_multi_index searchsorted "
        "unravel_index",
    "sort.sorting":
        "argpartition argsort lexsort partition sort sort_complex topk",
}
METHODS = {
    "index.gather":
        "take",
    "index.indexing":
        "getitem",
    "index.update":
        "setitem",
    "linalg.matmul":
        "matmul",
    "linalg.products":
        "dot",
    "math.casts":
        "astype conj conjugate view",
    "math.rounding":
        "clip round",
    "reduce.counting":
        "choose compress",
    "reduce.cumulative":
        "cumprod cumsum",
    "reduce.reduce":
        "all any argmax argmin max mean min prod sum",
    "reduce.statistics":
        "std var",
    "shape.creation":
        "diagonal trace",
    "shape.editing":
        "put",
    "shape.manipulation":
        "flatten matrix_transpose ravel repeat squeeze swapaxes",
    "shape.shape":
        "reshape transpose",
    "sort.search":
        "nonzero searchsorted",
    "sort.sorting":
        "argpartition argsort",
}
NUMPY = {
    "index.gather":
        "numpy.take numpy.take_along_axis",
    "index.update":
        "numpy.put_along_axis",
    "linalg.einsum":
        "numpy.einsum",
    "linalg.factor":
        "numpy.linalg.cholesky numpy.linalg.det numpy.linalg.inv numpy.linalg.slogdet "
        "numpy.linalg.solve numpy.linalg.tensorinv numpy.linalg.tensorsolve",
    "linalg.fourier":
        "numpy.fft.fft numpy.fft.fft2 numpy.fft.fftfreq numpy.fft.fftn numpy.fft.fftshift "
        "numpy.fft.hfft numpy.fft.ifft numpy.fft.ifft2 numpy.fft.ifftn numpy.fft.ifftshift "
        "numpy.fft.ihfft numpy.fft.irfft numpy.fft.irfft2 numpy.fft.irfftn numpy.fft.rfft "
        "numpy.fft.rfft2 numpy.fft.rfftfreq numpy.fft.rfftn",
    "linalg.matmul":
        "numpy.matmul",
    "linalg.polynomials":
        "numpy.poly numpy.polyadd numpy.polyder numpy.polydiv numpy.polyfit numpy.polyint "
        "numpy.polymul numpy.polysub numpy.polyval",
    "linalg.products":
        "numpy.convolve numpy.correlate numpy.cross numpy.dot numpy.inner numpy.kron "
        "numpy.linalg.cond numpy.linalg.cross numpy.linalg.diagonal numpy.linalg.matmul "
        "numpy.linalg.matrix_norm numpy.linalg.matrix_power numpy.linalg.multi_dot "
        "numpy.linalg.outer numpy.linalg.tensordot numpy.linalg.trace numpy.linalg.vecdot "
        "numpy.matvec numpy.outer numpy.tensordot numpy.vdot numpy.vecdot numpy.vecmat",
    "linalg.spectral":
        "numpy.linalg.eig numpy.linalg.eigh numpy.linalg.eigvals numpy.linalg.eigvalsh "
        "numpy.linalg.lstsq numpy.linalg.matrix_rank numpy.linalg.pinv numpy.linalg.qr "
        "numpy.linalg.svd numpy.linalg.svdvals",
    "math.bessel":
        "numpy.i0",
    "math.casts":
        "numpy.angle numpy.astype numpy.conjugate numpy.imag numpy.real",
    "math.comparison":
        "numpy.allclose numpy.array_equal numpy.equal numpy.greater numpy.greater_equal "
        "numpy.isclose numpy.less numpy.less_equal numpy.not_equal",
    "math.composed":
        "numpy.corrcoef numpy.cov numpy.diff numpy.ediff1d numpy.frexp numpy.gcd numpy.iscomplex "
        "numpy.iscomplexobj numpy.isreal numpy.isrealobj numpy.lcm numpy.ldexp "
        "numpy.lib.scimath.arccos numpy.lib.scimath.arcsin numpy.lib.scimath.arctanh "
        "numpy.lib.scimath.log numpy.lib.scimath.log10 numpy.lib.scimath.log2 "
        "numpy.lib.scimath.logn numpy.lib.scimath.power numpy.lib.scimath.sqrt numpy.modf "
        "numpy.nanargmax numpy.nanargmin numpy.nancumprod numpy.nancumsum numpy.packbits "
        "numpy.spacing numpy.trapezoid numpy.unpackbits numpy.unwrap",
    "math.elementwise":
        "numpy.absolute numpy.add numpy.copysign numpy.divide numpy.divmod numpy.fabs "
        "numpy.floor_divide numpy.fmod numpy.heaviside numpy.multiply numpy.negative "
        "numpy.nextafter numpy.positive numpy.remainder numpy.sign numpy.subtract",
    "math.logic":
        "numpy.bitwise_and numpy.bitwise_count numpy.bitwise_or numpy.bitwise_xor numpy.invert "
        "numpy.isfinite numpy.isinf numpy.isnan numpy.isneginf numpy.isposinf numpy.left_shift "
        "numpy.logical_and numpy.logical_not numpy.logical_or numpy.logical_xor numpy.nan_to_num "
        "numpy.right_shift numpy.signbit numpy.where",
    "math.powers":
        "numpy.float_power numpy.power numpy.reciprocal numpy.sqrt numpy.square",
    "math.rounding":
        "numpy.around numpy.ceil numpy.clip numpy.fix numpy.floor numpy.fmax numpy.fmin "
        "numpy.maximum numpy.minimum numpy.rint numpy.round numpy.trunc",
    "math.transcendental":
        "numpy.arccos numpy.arccosh numpy.arcsin numpy.arcsinh numpy.arctan numpy.arctan2 "
        "numpy.arctanh numpy.cbrt numpy.cos numpy.cosh numpy.deg2rad numpy.degrees numpy.exp "
        "numpy.exp2 numpy.expm1 numpy.hypot numpy.log numpy.log10 numpy.log1p numpy.log2 "
        "numpy.logaddexp numpy.logaddexp2 numpy.rad2deg numpy.radians numpy.sin numpy.sinc "
        "numpy.sinh numpy.tan numpy.tanh",
    "reduce.counting":
        "numpy.bincount numpy.choose numpy.compress numpy.count_nonzero numpy.histogram "
        "numpy.histogram2d numpy.histogram_bin_edges numpy.histogramdd numpy.intersect1d "
        "numpy.isin numpy.select numpy.setdiff1d numpy.setxor1d numpy.union1d numpy.unique "
        "numpy.unique_all numpy.unique_counts numpy.unique_inverse numpy.unique_values",
    "reduce.cumulative":
        "numpy.cumprod numpy.cumsum numpy.cumulative_prod numpy.cumulative_sum",
    "reduce.quantiles":
        "numpy.nanpercentile numpy.nanquantile numpy.percentile numpy.quantile",
    "reduce.reduce":
        "numpy.all numpy.amax numpy.amin numpy.any numpy.argmax numpy.argmin numpy.max numpy.mean "
        "numpy.min numpy.prod numpy.sum",
    "reduce.statistics":
        "numpy.average numpy.linalg.norm numpy.linalg.vector_norm numpy.median numpy.nanmax "
        "numpy.nanmean numpy.nanmedian numpy.nanmin numpy.nanprod numpy.nanstd numpy.nansum "
        "numpy.nanvar numpy.ptp numpy.std numpy.var",
    "shape.concat":
        "numpy.concatenate",
    "shape.creation":
        "numpy.arange numpy.diag numpy.diagflat numpy.diagonal numpy.empty numpy.empty_like "
        "numpy.eye numpy.full numpy.full_like numpy.geomspace numpy.identity numpy.linspace "
        "numpy.logspace numpy.ones numpy.ones_like numpy.trace numpy.tri numpy.tril numpy.triu "
        "numpy.zeros numpy.zeros_like",
    "shape.editing":
        "numpy.block numpy.delete numpy.fill_diagonal numpy.gradient numpy.insert numpy.ix_ "
        "numpy.lib.stride_tricks.sliding_window_view numpy.place numpy.put numpy.putmask "
        "numpy.rollaxis numpy.trim_zeros numpy.vander",
    "shape.manipulation":
        "numpy.append numpy.array_split numpy.atleast_1d numpy.atleast_2d numpy.atleast_3d "
        "numpy.column_stack numpy.dsplit numpy.dstack numpy.expand_dims numpy.flip numpy.fliplr "
        "numpy.flipud numpy.hsplit numpy.hstack numpy.linalg.matrix_transpose "
        "numpy.matrix_transpose numpy.meshgrid numpy.moveaxis numpy.ndim numpy.ravel numpy.repeat "
        "numpy.resize numpy.roll numpy.rot90 numpy.shape numpy.size numpy.split numpy.squeeze "
        "numpy.stack numpy.swapaxes numpy.tile numpy.unstack numpy.vsplit numpy.vstack",
    "shape.padding":
        "numpy.pad",
    "shape.shape":
        "numpy.broadcast_arrays numpy.broadcast_to numpy.reshape numpy.transpose",
    "sort.search":
        "numpy.argwhere numpy.digitize numpy.flatnonzero numpy.interp numpy.nonzero "
        "numpy.ravel_multi_index numpy.searchsorted numpy.unravel_index",
    "sort.sorting":
        "numpy.argpartition numpy.argsort numpy.lexsort numpy.partition numpy.sort "
        "numpy.sort_complex",
}
