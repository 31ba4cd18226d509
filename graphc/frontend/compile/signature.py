"""Signatures: what a call looks like, which earlier call it equals, and how it differs from one.

An argument leaf is an array (dtype and shape), a Python number (its kind: the value is a weak 0-d
argument), a spec, or static (str, None, enums, dtypes, functions: the value specialises).
"""

from __future__ import annotations

import enum
import functools
import inspect
import pathlib
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import ArgumentError, FeedError, GraphError
from graphc.forks import fork_safe_lock
from graphc.frontend.trace.tree import (
    LEAF,
    NONE,
    TreeDef,
    exact,
    flatten,
    key_names,
    leaf_names,
    treedef,
    unique_names,
)
from graphc.ir.types import Dim, DType, Type, dtype, tensor
from graphc.ops.record.value import Stateful, Value, number_dtype
from graphc.runtime.call.array import Array
from graphc.runtime.call.foreign import foreign_array

_STATIC_TYPES = (
    str,
    bytes,
    enum.Enum,
    np.dtype,
    DType,
    Dim,
    type,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.ModuleType,
    np.ufunc,
    pathlib.PurePath,
    range,
    type(Ellipsis),
)
_NUMBERS = (bool, int, float, complex)


@record(frozen=True)
class Static:
    """A leaf that specialises by value. Its type is part of it: 1, True and 1.0 stay apart."""

    value: Any  # can be hashed, or is a slice

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and exact(self.value) == exact(other.value)

    def __hash__(self) -> int:
        return hash(exact(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


class Identity:
    """A static leaf that specialises by identity: the `self` or `cls` of a method."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        if isinstance(self.value, type):
            return repr(self.value)
        return f"<{type(self.value).__name__} at {id(self.value):#x}>"


@record(frozen=True)
class Weak:
    """The key of a Python number: its graphc dtype and its Python type."""

    dtype: DType
    kind: type

    def __repr__(self) -> str:
        return f"Python {self.dtype.name}"


def is_number(value: Any) -> bool:
    """Whether a value is a Python number (NumPy's scalars are arrays)."""
    return isinstance(value, _NUMBERS) and not isinstance(value, np.generic)


LeafKey = Any  # Type | Weak | Static | Identity


@record(frozen=True)
class Signature:
    """The structure of the arguments and the key of every leaf."""

    tree: TreeDef
    keys: tuple[LeafKey, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return leaf_names(self.tree)

    def __repr__(self) -> str:
        pairs = zip(self.names, self.keys)
        return ", ".join(f"{name}: {key!r}" for name, key in pairs)


def plain_key(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call with plain arrays is known by."""
    return tuple([x for arg in args for x in (arg.dtype, arg.shape)])


def not_arrays(signature: Signature) -> str | None:
    """What to know of arguments that the function does not see as arrays, where it fails."""
    names = dict(zip(signature.names, signature.keys))
    shown = [f"{name} is {key.value!r}" for name, key in names.items() if isinstance(key, Static)]
    pairs = zip(signature.tree.children, key_names(signature.tree))
    kinds = {list: "a list", tuple: "a tuple", NONE.kind: "None"}
    shown += [
        f"{name} is {kinds[part.kind]}"
        for part, name in pairs
        if part is not LEAF and part.kind in kinds
    ]
    if not shown:
        return None
    return f"graphc: among the arguments, {', '.join(shown)}: pass np.array(...) where one is meant"


def leaf_key(leaf: Any) -> LeafKey:
    """The key of one leaf; None when the leaf is nothing graphc knows."""
    kind = type(leaf)
    if kind is np.ndarray:
        found = _ARRAY_KEYS.get((leaf.dtype, leaf.shape))
        return found if found is not None else _array_key(leaf)
    if isinstance(leaf, np.ndarray | np.generic | Array):
        return _array_key(leaf)
    if kind in _NUMBERS:
        return Weak(number_dtype(leaf), kind)
    if kind is Type:
        return leaf
    if isinstance(leaf, Value):
        return Weak(leaf.element, _KINDS[leaf.element.kind]) if leaf.weak else leaf.type
    if isinstance(leaf, Stateful):
        return leaf.type
    if isinstance(leaf, _STATIC_TYPES) or (kind is slice and _is_plain(leaf)):
        return Static(leaf)
    if hasattr(leaf, "__cuda_array_interface__"):
        from graphc.runtime.cuda.interop import slot_of

        slot = slot_of(leaf)
        return tensor(dtype(slot.dtype), slot.shape)
    if hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__"):
        return _array_key(as_array(leaf))
    if isinstance(leaf, _NUMBERS):  # a subclass of int, ...: it counts as the number it is
        element = number_dtype(leaf)
        return Weak(element, _KINDS[element.kind])
    return None


def _is_plain(part: slice) -> bool:
    """A slice whose ends are Python's numbers."""
    return all(type(end) in (int, type(None)) for end in (part.start, part.stop, part.step))


_ARRAY_KEYS: dict[tuple[np.dtype[Any], tuple[int, ...]], Type] = {}
_KINDS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def _array_key(array: Any) -> Type:
    made = tensor(dtype(array.dtype), array.shape)
    _ARRAY_KEYS[array.dtype, array.shape] = made
    return made


def as_array(leaf: Any) -> np.ndarray[Any, Any]:
    """An array-like leaf as a NumPy array, without a copy where its protocol allows."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if isinstance(leaf, Type):
        raise FeedError(
            f"a spec, {leaf}, stands where a call needs an array",
            hint="fn.graph(...), fn.stages(...) and fn.save(...) take specs",
        )
    return foreign_array(leaf)


def parameter_type(key: LeafKey) -> Type | None:
    """The type of the graph parameter that a leaf becomes; None for static leaves."""
    if isinstance(key, Type):
        return key
    return tensor(key.dtype) if isinstance(key, Weak) else None


def feed(leaf: Any, kind: Type) -> np.ndarray[Any, Any] | Array:
    """The leaf as a native, aligned, contiguous array; copied only if it is none."""
    if isinstance(leaf, Array):  # whoever runs it knows whether it lies in the right place
        return leaf
    if not isinstance(leaf, np.ndarray) and hasattr(leaf, "__cuda_array_interface__"):
        from graphc.runtime.cuda.interop import adopted

        return adopted(leaf)
    array = as_array(leaf) if not isinstance(leaf, _NUMBERS) else np.asarray(leaf, kind.dtype.numpy)
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype == kind.dtype.numpy:
        return array
    return np.array(array, kind.dtype.numpy, order="C")


# ------------------------------------------------------------------------------------ binding


MOST_LITERALS = 3  # values of one number that each have a compilation


def argument_names(option: str, given: Any) -> tuple[str, ...]:
    is_list = isinstance(given, Iterable) and not isinstance(given, str | np.ndarray)
    listed = tuple(given) if is_list else (given,)
    if not all(isinstance(name, str) for name in listed):
        raise GraphError(
            f"{option} takes names of arguments, got {given!r}", hint=f'{option}="x" or ("x", "y")'
        )
    return listed


class Literals:
    """Python numbers that stay Python numbers inside the function: flags, sizes, exponents.

    `kinds(argument)` are the types of those in an argument.  A number that keeps changing (a step,
    a rate) becomes an array as any other after `MOST_LITERALS` values, unless the function needs
    its value: then it is compiled for each.
    """

    def __init__(self, kinds: Callable[[str], tuple[type, ...]]) -> None:
        self.kinds = kinds
        self.seen: dict[tuple[str, int], list[Static]] = {}
        self.needed: set[tuple[str, int]] = set()  # where the values must be known
        self._lock = fork_safe_lock()

    def key(self, place: tuple[str, int], leaf: Any, weak: Weak) -> LeafKey:
        """The key of a number: leaf `place[1]` of the argument `place[0]`."""
        if weak.kind not in self.kinds(place[0]):
            return weak
        made = Static(leaf)
        with self._lock:
            seen = self.seen.setdefault(place, [])
            if made in seen or weak.kind is bool or place in self.needed:
                return made
            if len(seen) == MOST_LITERALS:
                return weak
            seen.append(made)
            return made

    def need_all(self) -> None:
        """Have all numbers specialise that do not any more."""
        with self._lock:
            full = {place for place, seen in self.seen.items() if len(seen) == MOST_LITERALS}
            self.needed |= full


def _is_foreign(function: Any) -> bool:
    """Whether this is, at the bottom, a function of C or of NumPy: those may treat a given default
    unlike an argument left out."""
    foreign = (np.ufunc, types.BuiltinFunctionType, type(np.sum))
    while function is not None and not isinstance(function, foreign):
        is_partial = isinstance(function, functools.partial)
        function = function.func if is_partial else getattr(function, "__wrapped__", None)
    return function is not None


class Binder:
    """Binds call arguments to the parameters of a function; defaults are left out."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: Iterable[str],
        bound: bool,
        literals: Literals | None = None,
    ) -> None:
        self.literals = literals
        try:
            self.signature = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = inspect.signature(lambda *args: None)
        self.with_defaults = not _is_foreign(function)
        self.static = frozenset(static)
        self.bound = bound  # the first argument is the `self` of a method
        parameters = list(self.signature.parameters.values())
        names = [p.name for p in parameters]
        self.title = f"{getattr(function, '__name__', 'the function')}({', '.join(names)})"
        for name in self.static:
            if name not in names:
                raise FeedError(f"static names {name!r}, which is no argument of {self.title}")
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.plain = all(p.kind in plain for p in parameters) and not self.static
        self.simple = self.plain and not bound
        self.names = tuple(names)

    def need_numbers(self) -> None:
        """Have Python numbers known inside the function where they may not be yet."""
        if self.literals is not None:
            self.literals.need_all()

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The given arguments by name; what is left to its default stays a Python constant.

        Raises FeedError as Python raises TypeError.
        """
        if self.simple and not kwargs and len(args) == len(self.names):
            return dict(zip(self.names, args))
        try:
            found = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.title}: {error}") from None
        return self._flat(self._with_static_defaults(found.arguments))

    def _with_static_defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """Defaults that specialise anyway (str, None, enums) are filled in; numbers stay out."""
        defaults = {
            name: p.default
            for name, p in self.signature.parameters.items()
            if self.with_defaults and (p.default is None or isinstance(p.default, str | enum.Enum))
        }
        names = [n for n in self.signature.parameters if n in given or n in defaults]
        return {name: given.get(name, defaults.get(name)) for name in names}

    def _flat(self, arguments: dict[str, Any]) -> dict[str, Any]:
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD and not arguments.get(name, True):
                del arguments[name]
        return arguments

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call with what `bind` returned, after leaves have been replaced."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        gap = False  # a parameter was left to its default: what follows goes by name
        for name, parameter in self.signature.parameters.items():
            if name not in arguments:
                gap = True
                continue
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                positional.extend(arguments[name])
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named.update(arguments[name])
            elif gap or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                named[name] = arguments[name]
            else:
                positional.append(arguments[name])
        return function(*positional, **named)


def signature_of(binder: Binder, arguments: dict[str, Any]) -> tuple[Signature, list[Any]]:
    """The signature of bound arguments and their leaves. Raises FeedError naming a bad argument."""
    leaves: list[Any] = []
    keys: list[LeafKey] = []
    trees = []
    for position, (name, value) in enumerate(arguments.items()):
        static = _static_key(binder, position, name, value)
        if static is not None:
            trees.append(LEAF)
            leaves.append(value)
            keys.append(static)
            continue
        here, tree = flatten(value)
        made = [leaf_key(leaf) for leaf in here]
        if None in made:
            _refuse(name, tree, here, made)
        if binder.literals is not None:
            for k, key in enumerate(made):
                if isinstance(key, Weak) and not isinstance(here[k], Value):
                    made[k] = binder.literals.key((name, k), here[k], key)
        leaves += here
        keys += made
        trees.append(tree)
    return Signature(treedef(dict, tuple(arguments), tuple(trees)), tuple(keys)), leaves


def _static_key(binder: Binder, position: int, name: str, value: Any) -> LeafKey:
    if name in binder.static:
        try:
            hash(value)
        except TypeError:
            raise FeedError(
                f"static argument {name} must be hashable, got {type(value).__name__}"
            ) from None
        return Static(value)
    if binder.bound and position == 0 and _is_owner(value):
        return Identity(value)
    return None


def _is_owner(value: Any) -> bool:
    """Whether a first argument is what a method is called of: a class, or no array nor nesting."""
    return isinstance(value, type) or (leaf_key(value) is None and flatten(value)[1] is LEAF)


def _refuse(name: str, tree: TreeDef, leaves: Sequence[Any], keys: Sequence[LeafKey]) -> None:
    for path, leaf, key in zip(leaf_names(tree), leaves, keys):
        if key is None:
            full = f"{name}.{path}" if path else name
            raise FeedError(
                f"argument {full} is {type(leaf).__name__}, which is neither an array nor a number",
                hint=f"name {name} in static=[...], or register the class with gc.register_pytree",
            )


def parameter_names(signature: Signature) -> tuple[str, ...]:
    """The names of the array leaves, each once."""
    pairs = zip(signature.names, signature.keys)
    return unique_names([name for name, key in pairs if parameter_type(key) is not None])


# ------------------------------------------------------------------------------------ differences


def difference(new: Signature, earlier: Sequence[Signature]) -> str:
    """Why a call needs a trace of its own: how it differs from the nearest earlier one."""
    if not earlier:
        return "first call"
    nearest = min(reversed(earlier), key=lambda old: len(changes(old, new)))
    found = changes(nearest, new)
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(found[:3]) + more


def changes(old: Signature, new: Signature) -> list[str]:
    """Every argument that changed, in words: "argument x: shape (32, 784) -> (64, 784)"."""
    before = dict(zip(old.names, old.keys))
    after = dict(zip(new.names, new.keys))
    found = [
        f"argument {name}: {_change(before[name], key)}"
        for name, key in after.items()
        if name in before and before[name] != key
    ]
    found += [f"argument {name}: new" for name in after if name not in before]
    found += [f"argument {name}: gone" for name in before if name not in after]
    if not found and old.tree is not new.tree:
        found.append("the containers of the arguments changed")
    return found


def _change(old: LeafKey, new: LeafKey) -> str:
    if isinstance(old, Type) and isinstance(new, Type):
        parts = []
        if old.dtype is not new.dtype:
            parts.append(f"dtype {old.dtype} -> {new.dtype}")
        if old.shape != new.shape and not (parts and _is_for(old, new)):
            parts.append(f"shape {_shape(old)} -> {_shape(new)}")
        return ", ".join(parts)
    if isinstance(old, Static) and isinstance(new, Static):
        return f"value {old!r} -> {new!r}"
    return f"{old!r} -> {new!r}"


def _is_for(old: Type, new: Type) -> bool:
    """Whether a shape with open extents is for another one, so that these are no difference."""
    pairs = zip(old.shape, new.shape)
    return old.rank == new.rank and all(a is b or not isinstance(a, int) for a, b in pairs)


def _shape(kind: Type) -> str:
    inside = ", ".join(map(str, kind.shape))
    return f"({inside},)" if kind.rank == 1 else f"({inside})"


def owner_of(signature: Signature) -> Any:
    """The `self` or `cls` of a method, unless it was declared static."""
    first = signature.keys[0] if signature.keys else None
    return first.value if isinstance(first, Identity) else None
