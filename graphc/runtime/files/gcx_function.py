"""A loaded .gcx file as a function: arrays in, arrays out, without any part of the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import FeedError
from graphc.runtime.call.array import Array
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.foreign import foreign_array
from graphc.runtime.call.phased_executable import PhasedExecutable, Runnable
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.files.gcx_reader import Held, read_key
from graphc.runtime.load.program import UNLIMITED


def nest(names: Sequence[str], results: Sequence[Any]) -> Any:
    """Results as the caller gets them: one alone, a tuple, or a dict when they have names.

    Results that were never named are called "0", "1", ...
    """
    if _are_unnamed(tuple(names)):
        return results[0] if len(results) == 1 else tuple(results)
    return dict(zip(names, results))


@lru_cache
def _are_unnamed(names: tuple[str, ...]) -> bool:
    return all(name == str(position) for position, name in enumerate(names))


_NESTINGS = (dict, list, tuple)


def _inner_names(names: Iterable[str]) -> set[str]:
    """What names of leaves begin with: "layers" and "layers.0" of "layers.0.w"."""
    return {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}


def _leaves(path: str, value: Any, inner: set[str]) -> Iterator[tuple[str, Any]]:
    """The leaves of a nesting and their names, down to what parameters are named after."""
    if path not in inner or not isinstance(value, _NESTINGS):
        yield path, value
        return
    if isinstance(value, dict):
        items: Iterable[tuple[Any, Any]] = value.items()
    else:
        items = zip(getattr(value, "_fields", range(len(value))), value)
    for key, child in items:
        yield from _leaves(f"{path}.{key}", child, inner)


def _fixed(values: Iterable[Any]) -> str | None:
    """What to say of values of which some are no arrays, where there is no parameter for one."""
    if all(isinstance(value, _NESTINGS) or hasattr(value, "shape") for value in values):
        return None
    return (
        "arguments that are no arrays (static=[...], defaults) were fixed when the graph was "
        "saved: leave them out, or save a graph for each of their values"
    )


def _is_nesting(value: Any) -> bool:
    """A dict, or a list that no array can be made of."""
    return isinstance(value, dict) or (
        isinstance(value, list | tuple)
        and any(child is None or isinstance(child, dict) for child in value)
    )


class Loaded:
    """What `gc.load` returns: a function of arrays, given in order or by the file's names.

    A function that took nestings may be called with them: the leaves of p={"w": w, "b": b} are
    what "p.w" and "p.b" name.  What it returned is not nested again: results come as a tuple, or
    by name ("0.a" of ({"a": ...}, ...)).  Arguments that were no arrays are fixed in the file.

    params         names of what it takes
    result_names   names of what it returns; a result that was never named has its position for one
    containers     of its variables: the file's names, and those here (`gc.variables(...)`,
                   `gc.reset_container(...)`)

    What was loaded from a file with a graph, which a .gcx file is not, has this, too:

    graph          the graph, or a program of several
    bound          the graph for given sizes
    build          the compilation for arrays of these shapes
    save           writes the graph as a .gir file
    """

    name: str
    params: tuple[str, ...]
    result_names: tuple[str, ...]
    containers: Mapping[str, str]
    _latest: Executable | PhasedExecutable | None = None  # what ran the latest call
    _takes_none = False  # is None a value of a parameter, as of an optional one of ONNX?

    if TYPE_CHECKING:
        graph: Any

        def bound(self, binding: dict[str, int]) -> Any: ...
        def build(self, *shapes: tuple[int, ...]) -> Any: ...
        def save(self, path: str | PathLike[str]) -> None: ...

    def __call__(self, *args: Any, **feeds: Any) -> Any:
        """Results as saved: one array, a tuple, or a dict when they have names.

        Raises FeedError for an argument that is missing, unknown or does not fit.
        """
        made = None if feeds else self._again(args)
        return (
            nest(self.result_names, self.run(self.arrange(args, feeds))) if made is None else made
        )

    def _again(self, args: Sequence[Any]) -> Any:
        """What a call like the latest one returns, by its native entry; None for other calls.

        A failed run is not done again: what it wrote to variables is written.
        """
        latest = self._latest
        made = latest.entry(*args) if latest is not None else None
        if made is None:
            return None
        if made.__class__ is int:
            assert isinstance(latest, Executable)
            raise self._explained(latest.failed(made), args)
        return nest(self.result_names, made if made.__class__ is tuple else (made,))

    def _explained(self, error: BaseException, arrays: Sequence[Any]) -> BaseException:
        """An error of a run on arrays, with what is known about it."""
        return error

    @property
    def whole(self) -> Any:
        """It with its graph, where another object stands for it that only runs."""
        return self

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run on one array per parameter; one array per result. Raises FeedError for a bad one."""
        raise NotImplementedError

    def arrange(self, args: tuple[Any, ...], feeds: dict[str, Any]) -> list[Any]:
        """One value per parameter. Raises FeedError for missing, double or unknown names.

        Nestings are given under the names that their leaves begin with, or in order of those:
        params={"w": w, "b": b} is what "params.w" and "params.b" are called with.  None is no
        array here as it was none to the function: it is skipped, alone and in nestings.
        """
        takes = self.params if self._takes_none else ()
        if len(args) > len(takes):
            args = tuple([value for value in args if value is not None])
        feeds = {n: value for n, value in feeds.items() if value is not None or n in takes}
        args, feeds = self._spread(args, feeds)
        if len(args) > len(self.params):
            message = f"{self.name} takes {len(self.params)} arrays, got {len(args)}"
            raise FeedError(message, hint=_fixed(args))
        values, known = dict(zip(self.params, args)), set(self.params)
        for name, value in feeds.items():
            if name not in known:
                hint = "; ".join(filter(None, (self._meant(name), _fixed([value]))))
                raise FeedError(f"{self.name} has no parameter {name!r}", hint=hint)
            if name in values:
                raise FeedError(f"parameter {name!r} of {self.name} is given twice")
            values[name] = value
        missing = [name for name in self.params if name not in values]
        if missing:
            raise FeedError(
                f"no feed for parameter {', '.join(map(repr, missing[:8]))}",
                hint=f"{self.name} takes an array for each of {', '.join(self.params[:8])}",
            )
        return [values[name] for name in self.params]

    def _spread(
        self, args: tuple[Any, ...], feeds: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call with one value for each argument of the function that was saved, as one with a
        value for each leaf; any other call as it is."""
        if not any(isinstance(value, _NESTINGS) for value in (*args, *feeds.values())):
            return args, feeds
        arguments = dict.fromkeys(name.partition(".")[0] for name in self.params)
        pairs = [*zip(arguments, args), *feeds.items()]
        inner, made = _inner_names(self.params), list[tuple[str, Any]]()
        for name, value in pairs:
            made += _leaves(name, value, inner)
        if self._is_for_leaves(pairs, len(args) + len(feeds), made):
            return args, feeds
        if len(args) > len(arguments):
            raise FeedError(
                f"{self.name} takes {len(arguments)} arguments, or {len(self.params)} arrays, "
                f"got {len(args)}",
                hint=_fixed(args),
            )
        spread: dict[str, Any] = {}
        for path, leaf in made:
            if path in spread:
                raise FeedError(f"parameter {path!r} of {self.name} is given twice")
            if leaf is not None or self._takes_none:
                spread[path] = leaf
        return (), spread

    def _is_for_leaves(
        self, pairs: list[tuple[str, Any]], count: int, leaves: list[tuple[str, Any]]
    ) -> bool:
        """Does a call of so many values give a value for each leaf, lists being arrays?"""
        if count != len(self.params) or any(_is_nesting(value) for _, value in pairs):
            return False
        given = {name for name, _ in pairs}
        opened = [leaf for name, leaf in leaves if name not in given]
        fits = len(pairs) == count and {name for name, _ in leaves} == {*self.params}
        return not (fits and any(hasattr(leaf, "shape") for leaf in opened))

    def _meant(self, name: str) -> str:
        """What a name that is no parameter's was meant to be."""
        from difflib import get_close_matches

        if name in _inner_names(self.params):
            leaves = [leaf for leaf in self.params if leaf.startswith(f"{name}.")]
            return f"its leaves are {', '.join(leaves[:8])}: give a dict, list or tuple of arrays"
        near = get_close_matches(name, self.params, 1)
        listed = ", ".join(self.params[:12]) + (", ..." if len(self.params) > 12 else "")
        return f"did you mean {near[0]!r}?" if near else f"it has {listed}"


class LoadedExecutable(Loaded):
    """A compiled graph read from a file. Call it with arrays, in order or by parameter name."""

    def __init__(
        self,
        executable: Runnable,
        path: Path,
        containers: Mapping[str, str] = MappingProxyType({}),
        limits: tuple[int | None, int] = (None, UNLIMITED),
    ) -> None:
        self.path = path
        self._limits = limits  # on threads and the bytes of stacks
        self.containers = containers
        self.executable = executable
        self.name = getattr(executable, "name", "") or executable.image.name
        self.params = tuple(slot.name for slot in executable.params)
        self.result_names = tuple(slot.name for slot in executable.results)

    def __reduce__(self) -> tuple[Any, ...]:
        """As the bytes of a file: with its code and the values of its variables, which the copy
        keeps in containers of its own.
        """
        held = gcx_writer.held_bytes(self.executable, self.containers)
        return _again, (held, str(self.path), *self._limits)

    def __repr__(self) -> str:
        pairs = (f"{slot.name}: {slot}" for slot in self.executable.params)
        return f"<graphc executable {self.name}({', '.join(pairs)})>"

    def run(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Run on one array per parameter; one array per result."""
        arrays = self.arrays(values)
        self._latest = latest = self.executable.of(arrays)
        return latest.run(arrays)

    def arrays(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """The values as arrays."""
        slots = self.executable.params
        return [_array(value, slot.dtype) for value, slot in zip(values, slots, strict=True)]


def _array(value: Any, dtype: str) -> Any:
    from graphc.runtime.load.program import numpy_dtype

    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return np.asarray(value, numpy_dtype(dtype))
    if isinstance(value, Array):
        return value
    if not isinstance(value, np.ndarray) and hasattr(value, "__cuda_array_interface__"):
        from graphc.runtime.cuda.interop import adopted

        return adopted(value)
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return foreign_array(value)
    return np.asarray(value)


def _again(held: bytes, path: str, threads: int | None, stack_bytes: int) -> LoadedExecutable:
    source = Held(Path(path).name, np.frombuffer(held, np.uint8))
    made, containers = gcx_files.opened(source, threads, False, None, stack_bytes)
    return LoadedExecutable(made, Path(path), containers, (threads, stack_bytes))


def load(
    path: str | PathLike[str],
    *,
    threads: int | None = None,
    share: bool | str | Iterable[str] = False,
    require_signature: str | PathLike[str] | None = None,
    stack_bytes: int = UNLIMITED,
) -> LoadedExecutable:
    """A .gcx file as a function. Raises GraphError for one that cannot run here.

    `share` names containers of variables that it shares with this program (True: all of them);
    without it its variables are its own.  `require_signature` is the file of the key that it must
    have been signed with (`graphc compile --sign`).  `stack_bytes` limits what stacks of loops grow
    to.
    """
    key = read_key(require_signature) if require_signature is not None else None
    made, containers = gcx_files.opened(Path(path), threads, share, key, stack_bytes)
    return LoadedExecutable(made, Path(path), containers, (threads, stack_bytes))
