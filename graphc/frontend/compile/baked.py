"""What a trace has baked in: values that the function read from outside of its arguments.

    @gc.compile
    def predict(self, x):                    watched: self.weight, self.scale, global BIAS
        return self.scaled(x @ self.weight + BIAS)

A trace runs once, and what it read then is part of the graph.  So every later call looks whether
these things are still what they were, and the function is traced again where they are not.  Which
they are is read off the code of the function and of all functions of the user's that it refers to.

Of objects their dict and what their class defines are watched, too, of classes what they inherit,
of methods what super() finds, of functions their defaults.
Numbers and strings are watched by value, other objects by identity, arrays by identity and by their
elements: all of them in arrays of up to WHOLE_BYTES, in larger ones an element of each row, of
SAMPLES rows if there are more.  `Config.watch` asks for all elements of all arrays, or for nothing.
"""

from __future__ import annotations

import array
import functools
import inspect
import itertools
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import (
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from graphc.base.captures import MISSING, Path, cells_of, paths
from graphc.errors import TraceError
from graphc.frontend.compile.bound_function import BoundFunction
from graphc.frontend.trace.hooks import origin_of
from graphc.frontend.trace.known_arrays import KnownArray
from graphc.ops.record.value import Stateful, Value
from graphc.seams.cpython import lengths_are_known, place_of

WHOLE_BYTES = 1 << 15  # of an array whose elements are all compared: a microsecond
SAMPLES = 512  # elements of a larger one: half a microsecond
MOST_WATCHED = 1000
MOST_DEPTH = 6  # of containers and objects in one another
_SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)
_WRITES = frozenset(
    (
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "setdefault",
        "update",
    )
)
_BOUND = (FunctionType, classmethod, staticmethod, property)  # become another when read
_LIBRARIES = frozenset((*sys.stdlib_module_names, "numpy", "graphc"))

Array = np.ndarray[Any, Any]
Get = Callable[[], Any]
# Of a value: a cell (or the address of a word) and None, or a dict and its key; of how many entries
# a dict has: that and None.
Place = tuple[CellType | int | dict[Any, Any], Any]


class Baked:
    """What is watched. `holds()` is false once something has changed; `change()` says what."""

    __slots__ = ("elements", "values")

    def __init__(self) -> None:
        self.values: list[tuple[Get, Any, str]] = []
        self.elements: list[tuple[Array, bytes, str]] = []

    def __bool__(self) -> bool:
        return bool(self.values or self.elements)

    def holds(self) -> bool:
        """Whether everything is as it was."""
        for get, value, _ in self.values:
            now = get()
            if now is not value and not _same(now, value):
                return False
        return all(sample.tobytes() == known for sample, known, _ in self.elements)

    def places(self) -> tuple[tuple[Place, Any], ...] | None:
        """The cells and dicts that hold what is watched, each with the object that it held.

        While they hold these very objects nothing has changed. None where more has to be looked at.
        """
        found = [(_place(get), value) for get, value, _ in self.values]
        known = tuple((place, value) for place, value in found if place is not None)
        return known if len(known) == len(found) and not self.elements else None

    def change(self) -> str:
        """What has changed, in words."""
        for get, value, title in self.values:
            now = get()
            if now is not value and not _same(now, value):
                return f"{title}: {_difference(value, now)}"
        changed = (title for sample, known, title in self.elements if sample.tobytes() != known)
        return f"{next(changed, 'nothing')}: its elements changed"


def _place(get: Get) -> Place | None:
    """Where a value is read, if that is a cell, or an entry of a dict or their number."""
    if not isinstance(get, functools.partial):
        return None
    if get.func is len and type(get.args[0]) is dict and lengths_are_known():
        return get.args[0], None
    if get.func is _content:
        return get.args[0], None
    if get.func is _held:
        address = place_of(get.args[0], get())
        return (address, None) if address else None
    holder = getattr(get.func, "__self__", None)
    return (holder, get.args[0]) if type(holder) is dict else None


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return MISSING


def _held(owner: Any, name: str) -> Any:
    """An attribute that has a place of its own in an object."""
    return getattr(owner, name, MISSING)


def _defined(owner: Any, name: str) -> Any:
    """What an attribute of an object is before it is bound: a function, a property."""
    holders = (attributes_of(owner), *map(vars, type(owner).__mro__))
    return next((holder[name] for holder in holders if name in holder), MISSING)


def _defined_by(kind: type, name: str) -> Any:
    """What a class, or the first of those that it derives from, defines."""
    holders = map(vars, kind.__mro__)
    return next((holder[name] for holder in holders if name in holder), MISSING)


def _same(now: Any, value: Any) -> bool:
    if type(now) is not type(value):
        return False
    if isinstance(value, tuple):
        pairs = zip(now, value)
        return len(now) == len(value) and all(a is b or _same(a, b) for a, b in pairs)
    if isinstance(value, float | complex | np.generic):  # 0.0 is not -0.0, not-a-number is itself
        return repr(now) == repr(value)
    return isinstance(value, _SCALARS) and now == value


def _sample(array: Array) -> Array:
    """A view of the elements that are compared.

    Steps a little shorter than a row lead through all rows, and through all columns in the end.
    """
    if array.nbytes <= WHOLE_BYTES:
        return array
    if array.flags.c_contiguous:
        row = array.shape[-1]
        rows = -(-array.size // (row * SAMPLES))  # of which one is looked at
        return array.reshape(-1)[:: max(1, min(rows * row - 1, array.size // SAMPLES))]
    each = round(SAMPLES ** (1 / array.ndim))
    return array[tuple(slice(None, None, max(1, extent // each)) for extent in array.shape)]


def _difference(value: Any, now: Any) -> str:
    before, after = _shown(value), _shown(now)
    return f"{before} -> {after}" if before != after else f"{before} -> another"


def _shown(value: Any) -> str:
    if value is MISSING:
        return "nothing"
    if isinstance(value, _SCALARS):
        return repr(value)[:40]
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    if isinstance(value, tuple):
        return f"{len(value)} items"
    return f"a {type(value).__name__}"


def baked(function: Callable[..., Any], owner: Any = None, watch: str = "some") -> Baked:
    """What a trace of the function that has just ended read; `owner` is its first argument, `watch`
    as in `Config`.

    Raises TraceError where a traced array was stored outside, with the line that made it.
    """
    if _is_numpys(function):
        return Baked()
    walk = _Walk(function, _sample if watch == "some" else lambda array: array)
    walk.function(function, owner)
    return walk.found if watch != "none" else Baked()


def _is_numpys(function: Any) -> bool:
    """Whether it is one of NumPy's public functions, which nobody changes: what those read are
    hundreds of names."""
    module, name = (str(getattr(function, key, "")) for key in ("__module__", "__name__"))
    root = module.partition(".")[0]
    return root == "numpy" and getattr(sys.modules.get(module), name, None) is function


class _Walk:
    """Follows the paths in functions from what they begin with to the values at their ends."""

    def __init__(self, root: Any, sample: Callable[[Array], Array]) -> None:
        self.found = Baked()
        self.sample = sample
        self.home = str(getattr(root, "__module__", "")).partition(".")[0]
        self.seen: set[Any] = set()
        self.kept: list[Any] = []  # objects whose identities are in `seen`

    # -- functions

    def function(self, function: Any, owner: Any = None) -> None:
        """Watch what a function reads, if it is one of the user's, or an object that is called.

        Of a library's method of an object of the user's, what it reads of that object.
        """
        while not isinstance(function, FunctionType):
            inner = _inside(function)
            if inner is None:
                self._object(type(function).__name__, function, 0)
                return
            if isinstance(function, functools.partial):
                self.leaf("the arguments of a partial", function.args)
                self._keywords("the keywords of a partial", function.keywords)
            function, owner = inner[0], inner[1] if inner[1] is not None else owner
        code = function.__code__
        if not self._is_new((id(code), id(owner), id(function)), function):
            return
        if hasattr(function, "__wrapped__"):
            self.function(function.__wrapped__, owner)
        origin, roots = origin_of(code), _roots(code, owner)
        is_ours = origin == "user" or (origin == "other" and self._is_ours(function.__module__))
        if not is_ours and (origin == "graphc" or not self._is_ours(_class(owner).__module__)):
            return
        found, cells = paths(code), cells_of(function)
        own = {*code.co_varnames, *code.co_cellvars} - roots.keys()
        for path in dict.fromkeys((*found.outer, *found.cells, *found.local, *found.stored)):
            if path[0] not in own and (is_ours or path[0] in roots):
                # What the function changes itself, a counter, say, is not watched for changes.
                self._follow_from(path, function, cells, roots, path in found.stored)
        if ("super",) in found.outer and owner is not None:
            self._inherited(code.co_names, owner, {path[-1] for path in found.stored})
        if is_ours:
            self._defaults(function)

    def _defaults(self, function: FunctionType) -> None:
        title = f"a default of {function.__name__}"
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name):
                self._note(functools.partial(_held, function, name), getattr(function, name), title)
        for value in function.__defaults__ or ():
            self.leaf(title, value)
        if function.__kwdefaults__:
            self._keywords(title, function.__kwdefaults__)

    def _keywords(self, title: str, given: dict[str, Any]) -> None:
        """Watch arguments by name, whatever their order; native code can look at all of it."""
        if not self._is_new(id(given), given):
            return
        self._note(functools.partial(len, given), len(given), title)
        for name, value in given.items():
            self._note(functools.partial(given.get, name, MISSING), value, title)
            self.leaf(title, value)

    def _inherited(self, names: Sequence[str], owner: Any, stored: Collection[str]) -> None:
        """Watch what super() may find: what any base defines by one of the names of a function."""
        kinds = dict.fromkeys((*_class(owner).__mro__[1:], *type(owner).__mro__[1:]))
        bases = [kind for kind in kinds if kind is not object]
        known = {n for n in names if n not in stored and any(n in vars(kind) for kind in bases)}
        for kind, name in itertools.product(bases, sorted(known)):
            if self._is_new((id(kind), id(owner), name), (kind, owner)):
                get = functools.partial(vars(kind).get, name, MISSING)
                self._member(f"super().{name}", owner, get)

    def _follow_from(
        self,
        path: Path,
        function: Any,
        cells: Mapping[str, Any],
        roots: Mapping[str, Any],
        stored: bool,
    ) -> None:
        """Follow a path of a function from its global, cell or argument."""
        name, *attributes = path
        if name in roots:
            if attributes:
                self._follow(name, roots[name], attributes, stored)
            elif not stored:
                self._parts(name, roots[name], 0)
        elif name in cells:
            get = functools.partial(_content, cells[name])
            self._watch(name, get, attributes, stored)
        elif name in function.__globals__:
            get = functools.partial(function.__globals__.get, name, MISSING)
            self._watch(f"global {name}", get, attributes, stored)

    def _watch(self, title: str, get: Get, attributes: Sequence[str], stored: bool) -> None:
        value = get()
        _require_no_tracer(title, value)
        if stored and not attributes:
            return
        if not isinstance(value, ModuleType):
            self._note(get, value, title)
        if attributes:
            self._follow(title, value, attributes, stored)
        else:
            self.leaf(title, value)

    def _follow(self, title: str, value: Any, attributes: Sequence[str], stored: bool) -> None:
        """Follow attributes of an object or a module of the user's."""
        name, *further = attributes
        if isinstance(value, ModuleType):
            if not self._is_ours(value.__name__):
                return
        elif isinstance(value, Value | Stateful | np.ndarray | np.generic):
            self.leaf(title, value)
            return
        elif isinstance(value, type) and _defined_by(value, name) is not MISSING:
            self._of_class(title, value, attributes, stored)
            return
        static = inspect.getattr_static(type(value), name, None)
        own = attributes_of(value)
        if name not in own and isinstance(static, _BOUND):
            self._definition(title, value, name)
            self.function(*_bound(static, value))
        elif name == "__class__":
            self._watch(f"{title}.{name}", functools.partial(type, value), further, stored)
        elif name in own:
            self._dict(title, value, own)
            get = functools.partial(own.get, name, MISSING)
            self._watch(f"{title}.{name}", get, further, stored)
        elif isinstance(static, MemberDescriptorType) or not (
            static is None or hasattr(static, "__get__")
        ):  # a slot, or an attribute of the class
            get = functools.partial(getattr, value, name, MISSING)
            self._watch(f"{title}.{name}", get, further, stored)
        else:
            self.leaf(title, value, writes=name in _WRITES)

    def _of_class(self, title: str, kind: type, attributes: Sequence[str], stored: bool) -> None:
        """Follow attributes of a class, which it has or inherits."""
        name, *further = attributes
        own = vars(kind)
        get = functools.partial(own.get, name, MISSING)
        if name not in own:
            get = functools.partial(_defined_by, kind, name)
        if isinstance(get(), classmethod | staticmethod):
            self._member(f"{title}.{name}", kind, get)
        else:
            self._watch(f"{title}.{name}", get, further, stored)

    def _member(self, title: str, owner: Any, get: Get) -> None:
        """Watch what a class defines, and what it reads of the object or class it is read from."""
        found = get()
        if isinstance(found, _BOUND):
            self._note(get, found, title)
            self.function(*_bound(found, owner))
        else:
            self._watch(title, get, (), stored=False)

    def _dict(self, title: str, value: Any, own: Mapping[str, Any]) -> None:
        """Watch that an object keeps the dict of its attributes."""
        is_kept = type(own) is dict and hasattr(value, "__dict__")
        if not is_kept or not self._is_new((id(value), "dict"), value):
            return
        self._note(functools.partial(_held, value, "__dict__"), own, title)

    def _definition(self, title: str, value: Any, name: str) -> None:
        """Watch what a method or property of an object is."""
        if self._is_new((id(value), "definition", name), value):
            get = functools.partial(_defined, value, name)
            self._note(get, get(), f"{title}.{name}")

    # -- values

    def leaf(self, title: str, value: Any, depth: int = 0, writes: bool = False) -> None:
        """Watch what a value is made of, if more than its identity tells what it is and the
        function does not write to it.
        """
        if isinstance(value, KnownArray) and value.known is not None:
            value = value.known  # NumPy's own work, kept as a cache of tables is
        _require_no_tracer(title, value)
        if isinstance(value, np.ndarray):
            if not value.dtype.hasobject and self._is_new(id(value), value):
                sample = self.sample(value)
                self.found.elements.append((sample, sample.tobytes(), title))
        elif isinstance(value, (*_SCALARS, Stateful, Value, ModuleType, type)):
            return
        elif isinstance(value, list | tuple | dict | set | frozenset | deque):
            self._items(title, value, depth, writes)
        elif isinstance(value, bytearray | array.array):
            self._note(functools.partial(bytes, value), bytes(value), title)
        elif _inside(value) is not None or isinstance(value, FunctionType):
            self.function(value)
        else:
            self._object(title, value, depth)

    def _items(self, title: str, value: Any, depth: int, writes: bool) -> None:
        if depth == MOST_DEPTH or not self._is_new(id(value), value):
            return
        items = value.values() if isinstance(value, dict) else value
        if isinstance(value, list | dict | set | deque) and not writes:
            make = functools.partial(tuple, items)
            self._note(make, make(), title)
        names = value if isinstance(value, dict) else range(len(value))
        for name, item in list(zip(names, items))[:MOST_WATCHED]:
            self.leaf(f"{title}[{name!r}]", item, depth + 1, writes)

    def _object(self, title: str, value: Any, depth: int) -> None:
        """An object that the function calls, or hands on to others."""
        kind = type(value)
        if not self._is_new((id(value), "object"), value):
            return
        if self._is_ours(kind.__module__) or kind is SimpleNamespace:
            called = inspect.getattr_static(kind, "__call__", None)
            if called is not None:
                self._definition(title, value, "__call__")
                self.function(called, value)
            if not (isinstance(called, FunctionType) or _inside(called)):
                self._parts(title, value, depth)
        elif kind.__module__.startswith("graphc.learn"):
            self._parts(title, value, depth)

    def _parts(self, title: str, value: Any, depth: int) -> None:
        """All attributes of an object."""
        own = attributes_of(value)
        if depth == MOST_DEPTH or not self._is_new((id(value), "parts"), value):
            return
        if isinstance(value, type):
            kinds = (kind for kind in value.__mro__ if self._is_ours(kind.__module__))
            for name in dict.fromkeys(name for kind in kinds for name in vars(kind)):
                self._of_class(title, value, (name,), stored=False)
            return
        for name in _slots(type(value)):
            get = functools.partial(_held, value, name)
            self._note(get, get(), f"{title}.{name}")
            self.leaf(f"{title}.{name}", get(), depth + 1)
        self._dict(title, value, own)
        for name, item in list(own.items()):
            self._note(functools.partial(own.get, name, MISSING), item, f"{title}.{name}")
            self.leaf(f"{title}.{name}", item, depth + 1)

    # -- what is known

    def _note(self, get: Get, value: Any, title: str) -> None:
        if len(self.found.values) < MOST_WATCHED:
            self.found.values.append((get, value, title))

    def _is_new(self, key: Any, value: Any) -> bool:
        if key in self.seen:
            return False
        self.seen.add(key)
        self.kept.append(value)
        return True

    def _is_ours(self, module: Any) -> bool:
        """Whether a module is the user's: no library, unless the function itself is part of it."""
        root = str(module).partition(".")[0]
        if root == self.home:
            return True
        if root in _LIBRARIES:
            return False
        file = getattr(sys.modules.get(str(module)), "__file__", None) or ""
        return "site-packages" not in file


def attributes_of(value: Any) -> Mapping[str, Any]:
    """The attributes of an object itself; an object may make up others."""
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, Mapping) else {}


def _class(owner: Any) -> type:
    """The class of an object, or the class itself."""
    return owner if isinstance(owner, type) else type(owner)


def _bound(definition: Any, owner: Any) -> tuple[Any, Any]:
    """The function in what a class defines, and what it is called of where `owner` finds it."""
    if isinstance(definition, classmethod):
        return definition.__func__, _class(owner)
    if isinstance(definition, staticmethod):
        return definition.__func__, None
    return definition.fget if isinstance(definition, property) else definition, owner


def _slots(kind: type) -> list[str]:
    """The attributes that objects of a class keep in places of their own."""
    found = (vars(each).items() for each in kind.__mro__)
    return [name for own in found for name, a in own if isinstance(a, MemberDescriptorType)]


def _roots(code: CodeType, owner: Any) -> dict[str, Any]:
    """The object that a method is called of, by the name of its first argument, or of *args."""
    if owner is None or not (code.co_argcount or code.co_flags & inspect.CO_VARARGS):
        return {}
    return {code.co_varnames[0 if code.co_argcount else code.co_kwonlyargcount]: owner}


def called_object(function: Any) -> Any:
    """The object that a function is a method of, or that is itself called; None for others."""
    owner = None
    while not isinstance(function, FunctionType):
        inner = _inside(function)
        if inner is None:
            return function
        function, owner = inner[0], inner[1] if inner[1] is not None else owner
    return owner


def _inside(value: Any) -> tuple[Any, Any] | None:
    """The function in a bound method, a partial or a compiled function, and what it is bound to."""
    if isinstance(value, BoundFunction):
        return value.__wrapped__, None
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, None
    if type(value).__module__ == "graphc.frontend.compile.decorator":
        return value.function, None
    return None


def _require_no_tracer(title: str, value: Any) -> None:
    if not isinstance(value, Value) or not value.owner.closed or value.known is not None:
        return
    raise TraceError(
        f"{title} keeps a traced array after the function has returned",
        location=value.node.loc,
        hint="return it from the function, or keep it in a gc.Variable: v.assign(...)",
    )
