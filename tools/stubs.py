"""Writes the type stubs of names that Python looks up on first use: editors and type checkers read
them in the place of `__getattr__`.

Functions of the op table are made by their families, so no source has their signatures: a stub has,
with the documentation.  Everything else is imported from where it is defined.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.errors import GraphError
from graphc.learn import nn
from graphc.ops.linalg import products
from graphc.ops.random import random
from graphc.ops.record.families import signature_of
from graphc.ops.record.value import PUBLIC

ROOT = Path(__file__).parents[1] / "graphc"
ARRAY = "NDArray[Any]"
HEAD = '''"""{title}

Written by `python -m tools`."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, DTypeLike, NDArray
'''

# What an argument named so takes, where the function itself takes what it is given: all others are
# arrays, or what makes one.
_SIZES, _NAME, _FLAG = "int | Sequence[int]", "str | None", "bool | None"
TYPES = {
    "arrays": "Sequence[ArrayLike]", "keys": "ArrayLike | Sequence[ArrayLike]",
    "conditions": "Sequence[ArrayLike]", "choices": "Sequence[ArrayLike]",
    "axes": _SIZES, "axis": f"{_SIZES} | None", "shape": _SIZES, "new_shape": _SIZES,
    "window_shape": _SIZES, "dims": _SIZES, "sizes": _SIZES,
    "starts": "ArrayLike | Sequence[ArrayLike]",
    "stride": f"{_SIZES} | None", "padding": f"{_SIZES} | str | Sequence[tuple[int, int]]",
    "output_padding": _SIZES, "dilation": _SIZES, "window": _SIZES,
    "dtype": "DTypeLike | None", "out": f"{ARRAY} | None", "copy": _FLAG, "stable": _FLAG,
    "kind": _NAME, "order": _NAME, "ord": "float | str | None", "key": "ArrayLike",
    "index": "Any", "optimize": "Any", "options": "Any", "named": "Any", "operands": "Any",
}  # fmt: skip
# What comes back, where it is not one array.
RESULTS = {
    "atleast_1d": "Any",
    "atleast_2d": "Any",
    "atleast_3d": "Any",
    "gradient": "Any",
    "linspace": "Any",
    "unique": "Any",
    "size": "int",
    "meshgrid": f"tuple[{ARRAY}, ...]",
    "shape": "tuple[int, ...]",
}
ARRAYS = {
    "Any",
    "ArrayLike",
    "Tensor",
    "Value",
    "object",
}  # what the name of the argument says better
ALIASES = {
    "Dimension": "int",
    "Dims": "int",
    "Shape": _SIZES,
    "ShapeLike": _SIZES,
    "DType": "DTypeLike",
    "Axes": f"{_SIZES} | None",
}
ATTRIBUTES = {"ints": "Sequence[int]", "strs": "Sequence[str]", "dim": "int", "dtype": "DTypeLike"}


def annotated(parameter: inspect.Parameter) -> str:
    """One argument as a stub writes it."""
    given = str(parameter.annotation)
    bare = parameter.annotation is parameter.empty or given.removesuffix(" | None") in ARRAYS
    kind = TYPES.get(parameter.name, "ArrayLike") if bare else ATTRIBUTES.get(given, given)
    for alias, meant in ALIASES.items():
        kind = re.sub(rf"\b{alias}\b", meant, kind)
    if parameter.kind is parameter.VAR_POSITIONAL and parameter.name == "arrays":
        kind = "ArrayLike"
    starred = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    stars = "*" * (starred.index(parameter.kind) + 1) if parameter.kind in starred else ""
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}: {kind}"
    default = parameter.default
    if default is None and kind != "Any" and "None" not in kind:
        kind += " | None"
    simple = default is None or isinstance(default, bool | int | float | str)
    return (
        f"{parameter.name}: {kind} = {default!r}" if simple else f"{parameter.name}: {kind} = ..."
    )


def arguments(signature: inspect.Signature) -> Iterable[str]:
    """All arguments, with the marks of positional-only and keyword-only ones."""
    positional = named = False
    for parameter in signature.parameters.values():
        if positional and parameter.kind is not parameter.POSITIONAL_ONLY:
            yield "/"
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            yield "*"
        named |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield annotated(parameter)
    if positional:
        yield "/"


def result(name: str, made: Callable[..., Any], signature: inspect.Signature) -> str:
    given = signature.return_annotation
    found = "Any" if given is signature.empty else str(given)
    if name not in RESULTS and found == "Any":
        return tried(made, signature)
    return RESULTS.get(name) or re.sub(r"\bAny\b", ARRAY, found)


def tried(made: Callable[..., Any], signature: inspect.Signature) -> str:
    """What a call with square matrices returns, if that works: most functions return one array."""
    one = inspect.Parameter
    kinds = (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    given = [p for p in signature.parameters.values() if p.default is p.empty and p.kind in kinds]
    try:
        with np.errstate(all="ignore"):
            found = made(*(np.eye(3) + 1 for _ in given))
    except (GraphError, TypeError, ValueError, IndexError):
        return ARRAY
    shapes: dict[type, str] = {tuple: f"tuple[{ARRAY}, ...]", list: f"list[{ARRAY}]"}
    return ARRAY if isinstance(found, np.ndarray | np.generic) else shapes.get(type(found), "Any")


def function(name: str, made: Callable[..., Any]) -> str:
    """A function of the op table."""
    signature = signature_of(made)
    listed, made_of = list(arguments(signature)), result(name, made, signature)
    line = f"def {name}({', '.join(listed)}) -> {made_of}:"
    if len(line) > 100:
        inner = ",\n    ".join(listed)
        line = f"def {name}(\n    {inner},\n) -> {made_of}:"
    text = inspect.getdoc(made) or ""
    mark = 'r"""' if "\\" in text else '"""'
    end = "\n" if "\n" in text or len(text) > 90 else ""
    return f"{line}\n{textwrap.indent(mark + text + end + chr(34) * 3, '    ')}\n"


def functions(table: dict[str, Callable[..., Any]]) -> str:
    return "\n".join(function(name, table[name]) for name in sorted(table))


def imported(homes: dict[str, str]) -> str:
    """Names that are defined in a module: `from home import name as name`."""
    lines = (f"from {home} import {name} as {name}" for name, home in homes.items())
    return "\n".join(sorted(lines)) + "\n"


def exported(names: Iterable[str]) -> str:
    """`__all__` as a stub states it: what a star imports, which type checkers know by the list."""
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


# ------------------------------------------------------------------------------------------- stubs


def of_graphc() -> str:
    """The package: classes and transforms by import, the op table's functions written out."""
    known: dict[str, Any] = vars(graphc)  # what the stub itself does not show
    homes = dict(known["_HOMES"])
    homes |= {error.__name__: "graphc.errors" for error in known["_ERRORS"]}
    homes |= dict.fromkeys(known["_MODULES"], "graphc")
    table = {name: PUBLIC[name] for name in dir(graphc) if name in PUBLIC and name not in homes}
    load = inspect.getsource(graphc.load).split('"""')
    title = graphc.__doc__.split("\n\n")[0]
    return "\n".join(
        (
            HEAD.format(title=title).replace("from typing", "from os import PathLike\nfrom typing"),
            imported(homes),
            f'__version__: str\n\n{load[0]}"""{load[1]}"""\n',
            functions(table),
        )
    )


def of_layers() -> str:
    """`gc.nn`: its classes by import, the functions of graphc that it also lists."""
    homes = {}
    for name in nn.__all__:
        made = inspect.unwrap(getattr(nn, name))
        home = getattr(made, "__module__", "graphc.learn.nn")
        homes[name] = "graphc" if PUBLIC.get(name) is made else home
    return f'"""{nn.__doc__}"""\n\n{imported(homes)}\n{exported(nn.__all__)}'


def of_module(title: str, names: Iterable[str], module: Any) -> str:
    made = functions({name: getattr(module, name) for name in names})
    return f"{HEAD.format(title=title)}\n{exported(module.__all__)}\n{made}"


def stubs() -> dict[Path, str]:
    """Every stub and its text."""
    linalg = "`gc.linalg`: products of matrices, norms, factors and solvers."
    keys = "`gc.random`: random numbers as pure functions of an explicit key."
    made = {
        "__init__.pyi": of_graphc(),
        "learn/nn/__init__.pyi": of_layers(),
        "linalg.pyi": of_module(linalg, graphc.linalg.__all__, products),
        "random.pyi": of_module(keys, graphc.random.__all__, random),
    }
    return {ROOT / name: re.sub(r"[ \t]+$", "", text, flags=re.M) for name, text in made.items()}
