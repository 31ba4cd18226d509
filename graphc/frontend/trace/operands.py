"""What stands among the arguments of a call: arrays that are known while tracing, and those not.

Arguments nest in tuples, lists and dicts, as NumPy takes them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphc.ir.sizes import Size
from graphc.ops.record.value import Stateful, Value

# Functions that write to their first argument.
WRITERS: frozenset[Any] = frozenset(
    (np.copyto, np.put_along_axis, np.put, np.place, np.putmask, np.fill_diagonal)
)


# Types whose values are plain: neither known arrays nor containers of some.
PLAIN_TYPES: set[type] = {int, float, bool, complex, str, type(None), np.ndarray, type(Ellipsis)}


def is_plain(args: tuple[Any, ...]) -> bool:
    """Whether `plain` changes nothing, which is seen at once for most calls."""
    for item in args:  # noqa: SIM110  (a generator costs more than the loop)
        if type(item) not in PLAIN_TYPES:
            return False
    return True


def leaves(given: Any) -> Iterator[Any]:
    """Everything in a nesting of arguments that is no container."""
    if isinstance(given, tuple | list):
        for item in given:
            yield from leaves(item)
    elif type(given) is dict:
        yield from leaves(list(given.values()))
    elif isinstance(given, slice):
        yield from (given.start, given.stop, given.step)
    else:
        yield given


def is_unknown(leaf: Any) -> bool:
    """Whether the elements of an operand are not known while tracing."""
    return isinstance(leaf, Stateful) or (isinstance(leaf, Value) and leaf.known is None)


def any_unknown(*given: Any) -> bool:
    """Whether the elements of some operand are not known while tracing."""
    return any(map(is_unknown, leaves(given)))


def is_basic(index: Any) -> bool:
    """Whether NumPy answers this index with a view (0-d results of full integer indices aside)."""
    parts = index if type(index) is tuple else (index,)
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, slice)
        or (isinstance(part, int | np.integer | Size) and not isinstance(part, bool))
        or (isinstance(part, Value) and part.ndim == 0 and part.element.is_integer)
        for part in parts
    )


def plain(given: Any) -> Any:
    """The arguments with arrays in the place of traced values that are known."""
    if type(given) in PLAIN_TYPES or (type(given) is tuple and is_plain(given)):
        return given
    return mapped(given, _plain) if any(isinstance(x, Value) for x in leaves(given)) else given


def _plain(leaf: Any) -> Any:
    array = leaf.known if isinstance(leaf, Value) else None
    return leaf if array is None else array


def mapped(given: Any, change: Callable[[Any], Any]) -> Any:
    """A nesting with other leaves, or the very same where none is another; named tuples stay what
    they are, and other classes of tuples are nobody's to make anew.
    """
    if isinstance(given, tuple | list):
        items = [mapped(item, change) for item in given]
        if all(map(operator.is_, items, given)):
            return given
        make = list if type(given) is list else getattr(type(given), "_make", None)
        return make(items) if make else tuple(items) if type(given) is tuple else given
    if type(given) is dict:
        made = {key: mapped(item, change) for key, item in given.items()}
        return given if all(map(operator.is_, made.values(), given.values())) else made
    if isinstance(given, slice):
        return slice(*(change(part) for part in (given.start, given.stop, given.step)))
    return change(given)


def plain_arguments(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`plain`, except for what the function writes to."""
    if not kwargs and is_plain(args):
        return args, kwargs
    head = args[:1] if function in WRITERS else ()
    named = {key: item if key == "out" else plain(item) for key, item in kwargs.items()}
    return (*head, *plain(args[len(head) :])), named
