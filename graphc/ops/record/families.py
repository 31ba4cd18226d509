"""Families: what an op can leave unsaid because its family derives it.

An element-wise op is a scalar expression and a NumPy reference; broadcasting, the type rule,
promotion, the public function, NumPy dispatch and cost follow.  Others are written with `define`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.exceptions import ComplexWarning

from graphc.base.hints import close_to
from graphc.errors import TypeRuleError, also
from graphc.ir.op import Attr, Effect, Lowering, Op, Sample, Scalar, register
from graphc.ir.promotion import promote
from graphc.ir.traits import NONE, Traits
from graphc.ir.types import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    I64,
    U64,
    AnyType,
    Dimension,
    DType,
    Type,
    definitely_different,
    dtype,
    tensor,
)
from graphc.ops.record.arguments import Applied, ArrayLike, Axes, DTypeLike
from graphc.ops.record.batching import Rule, rule_for
from graphc.ops.record.value import (
    PUBLIC,
    as_value,
    common_element,
    element_of,
    emit_promoted,
    functions,
    is_python_number,
    public,
)
from graphc.seams.cpython import frame_above

if TYPE_CHECKING:
    from inspect import Signature

as_dtype = dtype  # for functions with a NumPy-style `dtype=` argument
NUMPY_SPELLINGS = {"i8": I64, "u8": U64}  # NumPy counts bytes; elsewhere in graphc these are bits

BOOLS = ("bool",)
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
REAL = INTEGERS + FLOATS
NUMERIC = REAL + COMPLEX
ALL = BOOLS + NUMERIC


# --------------------------------------------------------------------------------------- type rules


def broadcast_dims(shapes: Sequence[tuple[Dimension, ...]]) -> tuple[Dimension, ...]:
    """NumPy broadcasting. Raises TypeRuleError naming all shapes.

    Two different symbolic extents are taken to be equal; the equality becomes a run-time check.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dimension] = []
    for axis in range(-rank, 0):
        found = dict.fromkeys(shape[axis] for shape in shapes if len(shape) >= -axis)
        found.pop(1, None)
        extents = sorted(found, key=lambda e: not isinstance(e, int)) if len(found) > 1 else found
        extent, *others = extents or (1,)
        for other in others:  # whether one is 1 is asked only where they differ
            if definitely_different(extent, other) and other != 1:
                if extent != 1:
                    listed = " and ".join(str(list(s)) for s in shapes)
                    raise TypeRuleError(f"shapes {listed} do not broadcast together")
                extent = other
        result.append(extent)
    return tuple(result)


def require(condition: bool, message: str, hint: str | None = None) -> None:
    """Raise TypeRuleError(message) unless the condition holds."""
    if not condition:
        raise TypeRuleError(message, hint=hint)


def require_mode(name: str, mode: Any, modes: Sequence[str]) -> None:
    """Raise TypeRuleError, which lists the modes of a function, for what is none of them."""
    known = f"{', '.join(modes[:-1])} or {modes[-1]}"
    require(mode in modes, f"{name}: there is no mode {mode!r}", hint=f"its modes are {known}")


# Options of NumPy's that arrays without a layout, on a device of their own, have one answer to.
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "casting": ("no", "equiv", "safe", "same_kind", "unsafe"),
    "copy": (True, False, None),
    "device": (None, "cpu"),
    "like": (None,),
    "order": ("K", "C", "A", "F", None),
    "subok": (True, False),
}


def require_options(name: str, given: Mapping[str, Any]) -> None:
    """Refuse options that do not exist, and values that they do not have. Raises TypeRuleError."""
    for option, value in given.items():
        if option not in _OPTIONS:
            near = close_to(option, [*_OPTIONS, "axis", "dtype", "shape"], 1)
            raise TypeRuleError(
                f"{name} has no argument {option!r}",
                hint=f"did you mean {near[0]!r}?" if near else None,
            )
        legal = _OPTIONS[option]
        require(
            any(value is one or (isinstance(one, str) and value == one) for one in legal),
            f"{name}: {option} must be one of {', '.join(map(repr, legal))}, got {value!r}",
        )


def require_real(name: str, value: ArrayLike, target: ArrayLike) -> None:
    """Refuse to store complex numbers in an array of real ones."""
    source, element = element_of(value)[0], element_of(target)[0]
    require(
        element.is_complex or not source.is_complex,
        f"{name}: {source} stored in {element} loses its imaginary part",
        hint="take y.real, or make the array complex",
    )


def require_storable(name: str, value: ArrayLike, target: ArrayLike) -> None:
    """Refuse to store what an array cannot hold, as NumPy does: complex numbers in an array of real
    ones, a number of Python's that no integer of the type is. Raises TypeRuleError, which is
    OverflowError or ValueError, too, for such a number.
    """
    require_real(name, value, target)
    element = element_of(target)[0]
    if not element.is_integer or not is_python_number(value):
        return
    try:
        number = int(value)  # type: ignore[arg-type]
    except (ValueError, OverflowError) as error:  # not-a-number, infinity
        raise also(TypeRuleError(f"{name}: {error}"), type(error)) from None
    info = np.iinfo(element.numpy)
    if not info.min <= number <= info.max:
        text = f"{name}: Python integer {number} is out of bounds for {element.name}"
        raise also(TypeRuleError(text), OverflowError)


def stored(name: str, value: ArrayLike, target: ArrayLike) -> Any:
    """The value in the element type of the array that it is stored in. Raises TypeRuleError for
    what it cannot hold."""
    require_storable(name, value, target)
    return functions.astype(as_value(value), common_element(target)[0])


def warn_imaginary() -> None:
    """Tell the user's line, as NumPy does, that a cast drops imaginary parts."""
    level, frame = 2, frame_above(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(("graphc", "numpy")):
        level, frame = level + 1, frame.f_back
    text = "Casting complex values to real discards the imaginary part"
    warnings.warn(text, ComplexWarning, stacklevel=level)


def require_castable(name: str, source: DType, target: DType, casting: str) -> None:
    """Refuse a cast that NumPy's rule of this name does not allow."""
    require_options(name, {"casting": casting})
    require(
        bool(np.can_cast(source.numpy, target.numpy, casting)),  # type: ignore[arg-type]
        f"{name}: {source} does not cast to {target} by the rule {casting!r}",
        hint="casting='unsafe' casts whatever happens to the values",
    )


def require_tensor(name: str, *types: AnyType) -> None:
    for kind in types:
        require(isinstance(kind, Type), f"{name} takes tensors, got {kind}")


def require_dtype(name: str, kind: Type, allowed: Sequence[str]) -> None:
    require(
        kind.dtype.name in allowed,
        f"{name} does not take {kind.dtype.name}",
        hint=f"it takes {', '.join(allowed)}; cast first",
    )


def normalise_axis(axis: int, rank: int, name: str) -> int:
    """A Python axis in 0..rank-1. Raises TypeRuleError."""
    try:
        axis = operator.index(axis)
    except TypeError:
        raise TypeRuleError(f"{name}: an axis must be an int, got {axis!r}") from None
    require(-rank <= axis < rank, f"{name}: axis {axis} is out of range for rank {rank}")
    return axis % rank


def normalise_axes(axis: Axes, rank: int, name: str) -> tuple[int, ...]:
    """None (all), an int or a sequence of ints as a sorted tuple without repeats."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(sorted(normalise_axis(a, rank, name) for a in given))
    require(len(set(axes)) == len(axes), f"{name}: axes {list(given)} repeat")
    return axes


# -------------------------------------------------------------------------------------- definitions


def define(
    name: str,
    *,
    infer: Callable[..., AnyType],
    reference: Callable[..., Any],
    lower: Lowering,
    attrs: tuple[Attr, ...] = (),
    dtypes: Sequence[str] = ALL,
    effect: Effect = Effect.PURE,
    commutative: bool = False,
    differentiable: bool = True,
    gradient: Callable[..., Any] | None = None,
    cost: Callable[..., tuple[float, float]] | None = None,
    samples: Callable[[], list[Sample]] | None = None,
    variadic: bool = False,
    regions: int = 0,
    in_kernels: bool = False,
    doc: str = "",
    is_custom: bool = False,
    traits: Traits = NONE,
    batch: Rule | None = None,
) -> Op:
    """Register an op that belongs to no family."""
    op = Op(
        name, infer, reference, lower, attrs, tuple(dtypes), effect, commutative, differentiable,
        gradient, cost, samples, variadic, regions, in_kernels, 1, doc, is_custom, traits,
        batch or rule_for(lower),
    )  # fmt: skip
    return register(op)


def _same(element: DType) -> DType:
    return element


def to_bool(element: DType) -> DType:
    return BOOL


def to_real(element: DType) -> DType:
    return element.real


def float_of(element: DType) -> DType:
    """The float type NumPy computes a transcendental function of this type in."""
    if element.kind in "fc":
        return element
    return {1: DTYPES["f16"], 2: F32}.get(element.itemsize, F64)


def operand_element(rule: Callable[[DType], DType], operands: Sequence[Any]) -> DType:
    """The dtype a public function casts its operands to: the rule applied to their common dtype.

    NumPy runs a float function in the first of its loops that every operand casts to safely, so
    hypot(i8, u8) is f16 although the common integer type is i16: float types are taken one by one.
    """
    kinds = [element_of(o) for o in operands]
    if rule is float_of and not any(weak for _, weak in kinds):
        return reduce(promote, (float_of(element) for element, _ in kinds))
    return rule(common_element(*operands)[0])


def elementwise_type(
    name: str,
    types: Sequence[AnyType],
    arity: int,
    dtypes: Sequence[str],
    result: Callable[[DType], DType] = _same,
) -> Type:
    """The type rule of element-wise ops: one common dtype, shapes that broadcast."""
    require(len(types) == arity, f"{name} takes {arity} operand(s), got {len(types)}")
    tensors = [t for t in types if isinstance(t, Type)]
    require_tensor(name, *types)
    first = tensors[0]
    require_dtype(name, first, dtypes)
    for other in tensors[1:]:
        require(
            other.dtype is first.dtype,
            f"{name}: operand dtypes {first.dtype} and {other.dtype} differ",
            hint="insert a cast",
        )
    return tensor(result(first.dtype), broadcast_dims([t.shape for t in tensors]))


def require_representable(name: str, element: DType, **numbers: float) -> None:
    """Numbers that kernels compute with are neither infinite nor 0 in the type of the elements."""
    info = np.finfo(element.real.compute.numpy)
    for attr, number in numbers.items():
        fits = number == 0 or float(info.tiny) <= abs(number) <= float(info.max)
        require(fits, f"{name}: {attr} {number} is out of range for {element}")


def elementwise_cost(flops: float) -> Callable[..., tuple[float, float]]:
    """cost(node) of an op that spends `flops` per element of its result."""

    def cost(node: Applied) -> tuple[float, float]:
        total = sum(n.type.nbytes for n in node.inputs) + node.type.nbytes
        return flops * node.type.size, float(total)

    return cost


def wide(reference: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy reference that sees f16 and bf16 operands as f32, the type kernels compute them in.

    Its result may therefore be f32: who evaluates a reference casts to the inferred result type.
    """

    def widened(*arrays: ArrayLike, **attrs: object) -> Any:
        with np.errstate(all="ignore"):
            return reference(*(_computed(a) for a in arrays), **attrs)

    return widened


def _computed(array: Any) -> Any:
    narrow = getattr(array, "dtype", None) in (BF16.numpy, F16.numpy)
    return array.astype(np.float32) if narrow else array


def elementwise(
    name: str,
    expression: Callable[..., Any],
    reference: Callable[..., Any],
    *numpy_functions: Callable[..., Any],
    arity: int = 1,
    dtypes: Sequence[str] = NUMERIC,
    result: Callable[[DType], DType] = _same,
    promote: Callable[[DType], DType] = _same,
    attrs: tuple[Attr, ...] = (),
    commutative: bool = False,
    differentiable: bool = True,
    gradient: Callable[..., Any] | None = None,
    flops: float = 1.0,
    domain: tuple[float, float] = (-4.0, 4.0),
    samples: Callable[[], list[Sample]] | None = None,
    tolerance: float = 1.0,
    method: bool = False,
    doc: str = "",
    public_name: str | None = None,
    aliases: Sequence[str] = (),
) -> Op:
    """Register an element-wise op and its public function.

    expression(b, x, y, ..., **attrs)   one element, from the operand dtype's compute type (f32 for
                                        f16 and bf16, Pairs of reals for complex) to the result's
    reference(x, y, ..., **attrs)       NumPy on whole arrays
    result(dtype)                       dtype of the result from the operands' common dtype
    promote(dtype)                      what the public function casts the common dtype to first
    domain                              range of float samples; `tolerance` scales the comparison
    public_name, aliases                names of the public function; with an empty public_name the
                                        caller writes it

    Operands of the op share one dtype and broadcast.
    """

    def derived_samples() -> list[Sample]:
        return elementwise_samples(arity, dtypes, domain, tolerance)

    op = define(
        name,
        infer=elementwise_rule(name, arity, dtypes, result, attrs),
        reference=wide(reference),
        lower=Scalar(expression),
        attrs=attrs,
        dtypes=dtypes,
        commutative=commutative,
        differentiable=differentiable,
        gradient=gradient,
        cost=elementwise_cost(flops),
        samples=samples or derived_samples,
        doc=doc,
    )
    if public_name != "":
        function = elementwise_function(op, arity, promote, public_name or name)
        public(*numpy_functions, method=method, name=public_name or name)(function)
        alias(public_name or name, *aliases)
    return op


def elementwise_rule(
    name: str,
    arity: int,
    dtypes: Sequence[str],
    result: Callable[[DType], DType],
    attrs: tuple[Attr, ...],
) -> Callable[..., Type]:
    """The type rule of an element-wise op: floats among its attributes are numbers of its dtype."""
    floats = [attr.name for attr in attrs if attr.kind == "float"]

    def infer(*types: AnyType, **attributes: Any) -> Type:
        made = elementwise_type(name, types, arity, dtypes, result)
        if floats:
            require_representable(name, made.dtype, **{key: attributes[key] for key in floats})
        return made

    return infer


def elementwise_function(
    op: Op, arity: int, rule: Callable[[DType], DType], name: str
) -> Callable[..., Any]:
    """The public function of an element-wise op: promotes its operands, then applies the op."""

    def function(*operands: ArrayLike, dtype: DTypeLike | None = None, **attributes: object) -> Any:
        operands, options = operands[:arity], operands[arity:]  # alpha in celu(x, alpha)
        fits = len(operands) == arity and len(options) <= len(op.attrs)
        require(fits, f"{name}() takes {arity} array(s), got {len(operands) + len(options)}")
        attributes |= zip((attr.name for attr in op.attrs), options)
        element = operand_element(rule, operands) if dtype is None else as_dtype(dtype)
        changed = dtype is not None or element is not common_element(*operands)[0]
        return emit_promoted(op, *operands, element=element if changed else None, **attributes)

    function.__name__ = name
    function.__doc__ = (
        op.doc or f"Element-wise {name}; operands broadcast and promote as in NumPy 2."
    )
    vars(function)["elementwise"] = op, arity
    return function


def signature_of(function: Callable[..., Any]) -> Signature:
    """How a public function is called: (x, y, /, option=1.0, *, dtype=None) if element-wise."""
    import inspect

    if "elementwise" not in vars(function):
        return inspect.signature(function)
    op, arity = vars(function)["elementwise"]
    one = inspect.Parameter
    operands = [one(name, one.POSITIONAL_ONLY) for name in "xyz"[:arity]]
    options = [
        one(attr.name, one.POSITIONAL_OR_KEYWORD, default=attr.default, annotation=attr.kind)
        for attr in op.attrs
    ]
    return inspect.Signature([*operands, *options, one("dtype", one.KEYWORD_ONLY, default=None)])


def sample_array(name: str, shape: tuple[int, ...], domain: tuple[float, float], seed: int) -> Any:
    """Deterministic sample data of a dtype: floats in the domain, small integers, random bools."""
    rng = np.random.default_rng(seed)
    kind = dtype(name)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.is_integer:
        low = 0 if kind.kind == "u" else -7
        return rng.integers(low, 8, shape).astype(kind.numpy)
    values = rng.uniform(*domain, shape)
    if kind.is_complex:
        values = values + 1j * rng.uniform(*domain, shape)
    return np.asarray(values).astype(kind.numpy)


_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e30)


def special_values(name: str) -> Any:
    """The values where mistakes live: NaN, infinities, signed zeros, 1, large; of integers the ends
    of the range and what lies around 0; none for bool and complex."""
    kind = dtype(name)
    if kind.is_integer:
        low, high = int(np.iinfo(kind.numpy).min), int(np.iinfo(kind.numpy).max)
        return np.array(sorted({low, low + 1, max(low, -1), 0, 1, 2, high - 1, high}), kind.numpy)
    with np.errstate(over="ignore"):
        return np.array(_SPECIAL if kind.is_float else ()).astype(kind.numpy)


def grid_arrays(name: str, arity: int, domain: tuple[float, float]) -> tuple[Any, ...]:
    """Operands that meet in every pair: values of the domain and the special ones."""
    rows, columns, layers = (
        np.concatenate([sample_array(name, (5,), domain, seed), special_values(name)[:most]])
        for seed, most in ((0, 10), (1, 10), (2, 1))
    )
    return (rows[:, None], columns, layers[:, None, None])[:arity]


def elementwise_samples(
    arity: int, dtypes: Sequence[str], domain: tuple[float, float], tolerance: float = 1.0
) -> list[Sample]:
    """Every dtype on a grid of plain and special values, some on vectors, 0-d and empty shapes; a
    shape and a dtype that fail."""
    shapes = [((), (), ()), ((0, 4), (1, 4), (4,)), ((17,), (17,), (1,))]
    good = [Sample(grid_arrays(name, arity, domain), tolerance=tolerance) for name in dtypes]
    usual = [name for name in dtypes if name in ("f32", "i32", "bool")]
    for name, shape in ((name, shape) for name in usual for shape in shapes):
        operands = (sample_array(name, s, domain, k) for k, s in enumerate(shape[:arity]))
        good.append(Sample(tuple(operands), tolerance=tolerance))
    return good + bad_samples(arity, dtypes, domain)


def bad_samples(
    arity: int, dtypes: Sequence[str], domain: tuple[float, float] = (-4.0, 4.0)
) -> list[Sample]:
    """Shapes that do not broadcast, and a dtype that the op does not take."""
    bad = []
    if arity > 1:
        first = sample_array(dtypes[0], (3, 4), domain, 0)
        clash = (first, sample_array(dtypes[0], (3, 5), domain, 1))
        rest = tuple(first for _ in range(arity - 2))
        bad.append(Sample(clash + rest, good=False))
    missing = [n for n in ALL if n not in dtypes]
    if missing:
        wrong = sample_array(missing[0], (3,), domain, 0)
        bad.append(Sample((wrong,) * arity, good=False))
    return bad


def device_code(module: str, name: str) -> Callable[[Any, bool, bool], Any]:
    """The device code of a Library or Loops op: a function of a module that plans launches, which
    is imported when a GPU needs it.
    """

    def code(node: Applied, strict: bool, simulated: bool) -> Any:
        from graphc.ops.record.launches import GPU, SIMULATOR

        plan = getattr(import_module(f"graphc.ops.{module}"), name)
        return plan(node, strict, SIMULATOR if simulated else GPU)

    return code


def alias(name: str, *others: str) -> None:
    """Publish an existing public function under further names."""
    for other in others:
        PUBLIC[other] = PUBLIC[name]
