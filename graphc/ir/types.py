"""Types of values: element types, symbolic dimensions, tensor types and tuples.

Types are interned, so equality is identity and a type can key a table.  A dimension is an `int` or
a `Dim`: a polynomial over named symbols kept in one normal form, so `N + N` and `2*N` are the same
object.  While a program is compiled for any value of the symbols, a `Size` is an int (see `sizes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from numbers import Number
from typing import Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from graphc.errors import GraphError, LimitError, TypeRuleError, also
from graphc.forks import fork_safe_lock
from graphc.ir.size_answers import any_size, read_by_user
from graphc.ir.sizes import Size
from graphc.limits import check_within

MAX_RANK = 32
MAX_BITS = 128  # of a coefficient: no extent comes near
MAX_ELEMENTS = 2**48


class DType:
    """One element type. `kind` is one of b, i, u, f, c; `numpy` is its storage type; all are
    interned.
    """

    __slots__ = ("index", "itemsize", "kind", "name", "numpy")

    def __init__(self, name: str, kind: str, numpy: np.dtype, index: int) -> None:
        self.name = name
        self.kind = kind
        self.numpy = numpy
        self.itemsize = numpy.itemsize
        self.index = index

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return dtype, (self.name,)

    @property
    def bits(self) -> int:
        return 8 * self.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def real(self) -> DType:
        """The type of the parts of a complex type; any other type is its own."""
        return {"c64": F32, "c128": F64}.get(self.name, self)

    @property
    def compute(self) -> DType:
        """The type arithmetic happens in: f16 and bf16 exist only in memory and compute in f32."""
        return F32 if self.name in ("f16", "bf16") else self


_STORAGE = {
    "bool": ("b", np.bool_),
    **{
        f"{k}{b}": (k, f"{'int' if k == 'i' else 'uint'}{b}") for k in "iu" for b in (8, 16, 32, 64)
    },
    "f16": ("f", np.float16),
    "bf16": ("f", ml_dtypes.bfloat16),
    "f32": ("f", np.float32),
    "f64": ("f", np.float64),
    "c64": ("c", np.complex64),
    "c128": ("c", np.complex128),
}
DTYPES: dict[str, DType] = {
    name: DType(name, kind, np.dtype(storage), index)
    for index, (name, (kind, storage)) in enumerate(_STORAGE.items())
}
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}

BOOL, F32, F64, I32, I64 = (DTYPES[n] for n in ("bool", "f32", "f64", "i32", "i64"))
F16, BF16, C64, C128 = (DTYPES[n] for n in ("f16", "bf16", "c64", "c128"))
U8, U32, U64, I8 = (DTYPES[n] for n in ("u8", "u32", "u64", "i8"))


@lru_cache(1024)
def _dtype_of_text(text: str) -> DType | None:
    if text in DTYPES:
        return DTYPES[text]
    try:
        return _BY_NUMPY.get(np.dtype(text).newbyteorder("="))
    except (TypeError, ValueError, SyntaxError):
        return None


def dtype(value: object) -> DType:
    """The DType of a graphc name ("f32"), a NumPy dtype or a Python scalar type.

    Raises `TypeRuleError` for a type graphc has no tensors of (strings, objects, dates, f80 ...).
    """
    if isinstance(value, DType):
        return value
    found = _dtype_of_text(value) if isinstance(value, str) else None
    if found is None and not isinstance(value, str):
        try:
            found = _BY_NUMPY.get(np.dtype(value).newbyteorder("="))  # type: ignore[call-overload]
        except (TypeError, ValueError):
            found = None
    if found is None:
        hint = f"use one of {', '.join(DTYPES)}"
        raise also(
            TypeRuleError(f"{value!r} is not an element type of graphc", hint=hint), TypeError
        )
    return found


# ------------------------------------------------------------------------------------ interning

Key = TypeVar("Key")
Made = TypeVar("Made")
_interning = fork_safe_lock()


def interned(table: WeakValueDictionary[Key, Made], key: Key, made: Made) -> Made:
    """What stands in the table under a key, else the value, which does from now on.

    It goes with its last user, so that a process may read any number of graphs.
    """
    with _interning:
        return table.setdefault(key, made)


# ------------------------------------------------------------------------------------ dimensions

Monomial = tuple[str, ...]


class Dim:
    """A symbolic dimension: an integer polynomial in normal form, at least one symbol deep.

    Terms map a sorted tuple of symbol names to a non-zero coefficient.  Interned: equal
    polynomials are one object.  Arithmetic returns an `int` as soon as no symbol is left.
    """

    __slots__ = ("__weakref__", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dimension) -> Dimension:
        if not isinstance(other, _EXTENTS):
            return NotImplemented
        merged = dict(self.terms)
        for monomial, coefficient in _terms(other):
            merged[monomial] = merged.get(monomial, 0) + coefficient
        return _normal(merged)

    def __mul__(self, other: Dimension) -> Dimension:
        if not isinstance(other, _EXTENTS):
            return NotImplemented
        product: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                key = tuple(sorted(left + right))
                product[key] = product.get(key, 0) + a * b
        return _normal(product)

    def __neg__(self) -> Dimension:
        return self * -1

    def __sub__(self, other: Dimension) -> Dimension:
        return self + other * -1

    def __rsub__(self, other: Dimension) -> Dimension:
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__

    def divide(self, divisor: int) -> Dimension | None:
        """The exact quotient by an int, or None when a coefficient is not a multiple of it."""
        if divisor == 0 or any(c % divisor for _, c in self.terms):
            return None
        return _normal({m: c // divisor for m, c in self.terms})

    def symbols(self) -> set[str]:
        return {name for monomial, _ in self.terms for name in monomial}

    def value(self, binding: Mapping[str, int]) -> int:
        """The dimension with every symbol replaced. Raises GraphError for an unbound symbol."""
        total = 0
        for monomial, coefficient in self.terms:
            for name in monomial:
                if name not in binding:
                    raise GraphError(
                        f"dimension symbol {name} has no value: no argument says it",
                        hint=f"graphc run and graphc compile take one: --bind {name}=4",
                    )
                coefficient *= binding[name]
            total += coefficient
        return total

    # What the user's code asks while it is traced has no answer here: sizes have guards for it.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dim | Number):
            return NotImplemented  # an array compares its elements
        if self is other or not read_by_user():
            return self is other
        if isinstance(other, Dim | int) and definitely_different(self, other):
            return False
        raise any_size(repr(self))

    def __hash__(self) -> int:
        return object.__hash__(self) if not read_by_user() else _unanswered(self)

    def __bool__(self) -> bool:
        return True if not read_by_user() else _unanswered(self)

    def __str__(self) -> str:
        return repr(self) if not read_by_user() else _unanswered(self)

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec) if not read_by_user() else _unanswered(self)

    def __repr__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            factors = (
                list(monomial) if coefficient == 1 and monomial else [str(coefficient), *monomial]
            )
            if coefficient == -1 and monomial:
                factors = ["-" + monomial[0], *monomial[1:]]
            parts.append("*".join(factors))
        return "+".join(parts).replace("+-", "-")

    def __reduce__(self) -> tuple[object, ...]:
        return _normal, (dict(self.terms),)


def _unanswered(dim: Dim) -> NoReturn:
    raise any_size(repr(dim))


Dimension = int | Dim
_EXTENTS = (int, np.integer, Dim)
_DIMS: WeakValueDictionary[tuple[tuple[Monomial, int], ...], Dim] = WeakValueDictionary()


def _terms(value: Dimension) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Dim) else (((), int(value)),)


def _normal(terms: dict[Monomial, int]) -> Dimension:
    # Longest monomials first, the constant last: the order people write polynomials in.
    kept = tuple(sorted(((m, c) for m, c in terms.items() if c), key=lambda t: (-len(t[0]), t[0])))
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    found = _DIMS.get(kept)
    if found is None:
        _check_terms(kept)
        made = Dim()
        made.terms = kept
        found = interned(_DIMS, kept, made)
    return found


def _check_terms(terms: tuple[tuple[Monomial, int], ...]) -> None:
    check_within("dimension_terms", len(terms), f"a dimension of {len(terms)} terms")
    for monomial, coefficient in terms:
        check_within("dimension_factors", len(monomial), f"a product of {len(monomial)} symbols")
        if coefficient.bit_length() > MAX_BITS:
            raise LimitError(f"a dimension with a coefficient of over {MAX_BITS} bits")


def symbol(name: str) -> Dim:
    """The dimension that stands for a named unknown extent."""
    made = _normal({(name,): 1})
    assert isinstance(made, Dim)
    return made


def definitely_equal(a: Dimension, b: Dimension) -> bool:
    """True when all values of the symbols make the two dimensions equal."""
    return a is b or (not isinstance(a, Size) and not isinstance(b, Size) and a == b)


def definitely_different(a: Dimension, b: Dimension) -> bool:
    """True when no value of the symbols can make the two dimensions equal (they differ by a
    constant).
    """
    difference = a - b
    return isinstance(difference, int | Size) and difference != 0


# ------------------------------------------------------------------------------------ tensor types


class Type:
    """dtype + shape of a tensor. Interned: compare with `is`."""

    __slots__ = ("__weakref__", "_size", "dtype", "is_static", "shape")
    dtype: DType
    shape: tuple[Dimension, ...]
    is_static: bool
    _size: int | None  # of a concrete shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as ints. Raises GraphError if a dimension is still symbolic."""
        if not self.is_static:
            raise GraphError(f"{self} has no concrete shape yet", hint="bind its symbols first")
        return self.shape  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements (concrete shapes only)."""
        return self._size if self._size is not None else math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        size = self._size
        return (math.prod(self.dims) if size is None else size) * self.dtype.itemsize

    def symbols(self) -> set[str]:
        return {s for d in self.shape if isinstance(d, Dim) for s in d.symbols()}

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    def __reduce__(self) -> tuple[object, ...]:
        return tensor, (self.dtype, self.shape)


class TupleType:
    """The type of a node with several results, read with `item`. The empty tuple is the unit
    type.
    """

    __slots__ = ("__weakref__", "elements")
    elements: tuple[AnyType, ...]

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.elements))})"

    def __reduce__(self) -> tuple[object, ...]:
        return tuple_type, (self.elements,)


class StackType:
    """A stack that a loop's gradient pushes to and pops from; it grows at run time."""

    __slots__ = ("__weakref__", "element")
    element: Type

    @property
    def nbytes(self) -> int:
        """The bytes of a handle; what the stack holds lies elsewhere."""
        return 8

    def __repr__(self) -> str:
        return f"stack<{self.element!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        return stack_type, (self.element,)


AnyType = Type | TupleType | StackType
_TYPES: WeakValueDictionary[tuple[DType, tuple[Dimension, ...]], Type] = WeakValueDictionary()
_TUPLES: WeakValueDictionary[tuple[AnyType, ...], TupleType] = WeakValueDictionary()
_STACKS: WeakValueDictionary[Type, StackType] = WeakValueDictionary()


def tensor(element: DType, shape: Iterable[Dimension] = ()) -> Type:
    """The interned tensor type. Raises for a negative extent, too many dimensions or elements."""
    shape = tuple(shape)
    found = _TYPES.get((element, shape))
    if found is None:
        _check_shape(shape)
        made = Type()
        made.dtype, made.shape = element, shape
        made.is_static = all(isinstance(d, int | Size) for d in shape)
        made._size = math.prod(made.dims) if made.is_static else None
        found = interned(_TYPES, (element, shape), made)
    return found


def _check_shape(shape: tuple[Dimension, ...]) -> None:
    if len(shape) > MAX_RANK:
        raise TypeRuleError(f"a tensor of rank {len(shape)} is over the limit of {MAX_RANK}")
    total = 1
    for extent in shape:
        if isinstance(extent, int | Size) and extent < 0:
            raise TypeRuleError(f"negative dimension {extent} in shape {list(shape)}")
        if isinstance(extent, int):
            total *= max(extent, 1)
    if total > MAX_ELEMENTS:
        raise LimitError(f"a tensor of shape {list(shape)} is over the limit of 2**48 elements")


def tuple_type(elements: Iterable[AnyType]) -> TupleType:
    elements = tuple(elements)
    found = _TUPLES.get(elements)
    if found is None:
        made = TupleType()
        made.elements = elements
        found = interned(_TUPLES, elements, made)
    return found


def stack_type(element: Type) -> StackType:
    found = _STACKS.get(element)
    if found is None:
        made = StackType()
        made.element = element
        found = interned(_STACKS, element, made)
    return found


UNIT = tuple_type(())


def type_text(array: Any) -> str:
    """An array's dtype and shape as types are written: f64[3,4]; NumPy's name for other dtypes."""
    found = next((d.name for d in DTYPES.values() if d.numpy == array.dtype), str(array.dtype))
    return f"{found}[{','.join(map(str, array.shape))}]"


def leaves(kind: AnyType) -> tuple[Type | StackType, ...]:
    """The tensor (and stack) types a value is made of, left to right."""
    if isinstance(kind, TupleType):
        return tuple(leaf for element in kind.elements for leaf in leaves(element))
    return (kind,)


def substitute_dim(extent: Dimension, binding: Mapping[str, int]) -> Dimension:
    return extent.value(binding) if isinstance(extent, Dim | Size) else extent


def substitute(kind: AnyType, binding: Mapping[str, int]) -> AnyType:
    """The type with every symbol replaced by its value."""
    if isinstance(kind, TupleType):
        return tuple_type(substitute(e, binding) for e in kind.elements)
    if isinstance(kind, StackType):
        made = substitute(kind.element, binding)
        assert isinstance(made, Type)
        return stack_type(made)
    return tensor(kind.dtype, (substitute_dim(d, binding) for d in kind.shape))
