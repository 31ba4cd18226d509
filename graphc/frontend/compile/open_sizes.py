"""Open sizes: one compilation for arrays of many sizes.

A dimension that changes between calls becomes a symbol, and so do those that are named
(`gc.compile(fn, sizes={"x": ("n", 16)})`).  The graph is traced with symbols and compiled with them
open (see `graphc.ir.sizes`): the first sizes are an example, for which decisions are made.  Sizes
for which one of them would be wrong get a compilation of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from graphc.config import Config
from graphc.errors import FeedError, GraphError
from graphc.frontend.compile.build import Built, build
from graphc.frontend.trace.spec import parse_dimension
from graphc.ir.graph import Graph
from graphc.ir.sizes import Scope
from graphc.ir.types import Dim, Dimension, Type, symbol, tensor
from graphc.runtime.load.size_formulas import Guard

Shape = tuple[int, ...]
Origin = TypeVar("Origin")
MOST_OPEN = 6  # compilations with open sizes; further sizes are compiled exactly
# What asks for the number of a size that is open: the user's own code, NumPy's, or ours.
NEEDS_NUMBERS = (GraphError, TypeError, ValueError, ArithmeticError, LookupError, AssertionError)
FEWEST = 2  # an example of 0 or 1 would be a special case
USUAL = 32  # what decisions are made for where the arrays at hand are smaller, or there are none


def can_be_open(config: Config) -> bool:
    """Whether sizes can be left open for these devices: not on GPUs, nor through Numba."""
    gpus = any("gpu" in name or "cuda" in name for name in config.devices)
    return config.backend == "llvm" and not config.target.startswith("cuda") and not gpus


def build_open(
    graph: Graph, config: Config, examples: Mapping[str, int], seconds: float = 0.0
) -> Built:
    """Compile a graph whose symbols stay open; `examples` are sizes that it will meet.

    Raises GraphError for what needs a number.
    """
    return build(graph, config, seconds, sizes=scope_of(examples).symbols)


def scope_of(examples: Mapping[str, int], for_any: bool = False) -> Scope:
    """Open sizes by name; `for_any`: what is traced with them holds for as many as can be."""
    scope, used = Scope(), set[int]()
    scope.for_any = for_any
    for name, given in examples.items():
        example = max(given, FEWEST)
        while example in used:  # two symbols that are equal by chance would be taken for one
            example += 1
        used.add(example)
        scope.symbol(name, example)
    return scope


def build_traced(graph: Graph, scope: Scope, config: Config, seconds: float = 0.0) -> Built:
    """Compile a graph that was traced with open sizes."""
    scope.typing = scope.for_any = False
    return build(graph, config, seconds)


class OpenBuilds(Generic[Origin]):
    """The compilations of one program that leave sizes open, the latest first, each with what it
    came from; it is for calls while that `holds`.

    closed   why there will be no more
    refused  the decision that does not hold for what was asked last
    """

    def __init__(self, holds: Callable[[Origin], bool] = lambda origin: True) -> None:
        self._holds = holds
        self.made: list[tuple[Built, Origin]] = []
        self.closed = ""
        self.refused = ""
        self._examples: list[tuple[Mapping[str, int], bool]] = []
        self._for_any = set[tuple[str, ...]]()  # open sizes for which formulas were tried

    def __bool__(self) -> bool:
        return bool(self.made)

    @property
    def may_grow(self) -> bool:
        return not self.closed and len(self.made) < MOST_OPEN

    def serving(self, shapes: Sequence[Shape]) -> tuple[Built, Origin] | None:
        """What runs arrays of these shapes: one of the compilations, its sizes filled in."""
        self.refused = ""
        for built, origin in self.made:
            if not self._holds(origin):
                continue
            bound = built.bound(tuple(shapes))
            if bound is not None:
                return bound, origin
            self.refused = self.refused or built.refusal(tuple(shapes))
        return None

    def extended(
        self,
        given: Mapping[str, int],
        shapes: Sequence[Shape] | None,
        make: Callable[[Scope], tuple[Built, Origin]],
        allow: Callable[[], None] = lambda: None,
    ) -> tuple[Built, Origin] | None:
        """What runs arrays of these shapes, compiled for sizes like the `given` ones: usual sizes
        where those are small, else themselves.  Without shapes, the compilation itself.

        No example is 0 or 1: once decisions do not hold for these, formulas are tried instead.

        `allow` is called before each compilation and may raise.  What needs a number is `closed`.
        """
        failed: Exception | None = None
        names = tuple(given)
        special = min(given.values(), default=FEWEST) < FEWEST and names not in self._for_any
        for fewest, for_any in ((USUAL, False), (USUAL, special), (FEWEST, False)):
            example = {name: max(size, fewest) for name, size in given.items()}
            if (example, for_any) in self._examples or not self.may_grow:
                continue
            self._examples.append((example, for_any))
            if for_any:
                self._for_any.add(names)
            allow()
            try:
                self._add(*make(scope_of(example, for_any)), last=for_any)
            except FeedError:  # sizes that the program is not for
                continue
            except NEEDS_NUMBERS as error:
                failed = failed if for_any else error
                continue
            found = self.serving(shapes) if shapes is not None else self.made[0]
            if found is not None:
                return found
        if failed is not None:
            self.closed = str(failed).splitlines()[0]
        return None

    def _add(self, built: Built, origin: Origin, last: bool) -> None:
        """Keep a compilation as the first or the last that is asked to serve."""
        self.made.insert(len(self.made) if last else 0, (built, origin))
        formulas = built.formulas
        if formulas is None:
            return
        for guard in formulas.guards:
            if guard.relation == "zero" and formulas.is_plain(guard.polynomial):
                self.closed = f"{_needed(guard, formulas.symbols)} is needed"


def _needed(guard: Guard, symbols: Sequence[str]) -> str:
    """What a guard asks for; of one size alone it is its number, whatever the example was."""
    asked = {symbols[k] for _, unknowns in guard.polynomial for k in unknowns}
    _, opened, place = guard.text.partition(" (")
    return f"a number for {asked.pop()}{opened}{place}" if len(asked) == 1 else guard.text


# ----------------------------------------------------------------------------------- which are open


def named_shapes(
    given: Mapping[str, Iterable[int | str | Dim]], names: Sequence[str], kinds: Sequence[Type]
) -> list[Type]:
    """The types of arguments with the dimensions that the user has named.

    Raises GraphError for a name that is no argument, and for a shape that does not fit.
    """
    unknown = [name for name in given if name not in names]
    if unknown:
        listed = ", ".join(names)
        raise GraphError(f"sizes names {unknown[0]!r}, which is no array argument", hint=listed)
    return [
        _named(name, kind, tuple(given[name])) if name in given else kind
        for name, kind in zip(names, kinds, strict=True)
    ]


def _named(name: str, kind: Type, shape: tuple[int | str | Dim, ...]) -> Type:
    dims: list[Dimension] = [parse_dimension(d) if isinstance(d, str) else d for d in shape]
    fits = len(dims) == kind.rank and all(
        isinstance(want, Dim) or want == have for want, have in zip(dims, kind.shape, strict=False)
    )
    if not fits:
        raise GraphError(
            f"{name} has shape {list(kind.shape)}, which is not {list(shape)} of sizes=",
            hint="a dimension of sizes= is a name, or the number that it always is",
        )
    return tensor(kind.dtype, dims)


def changing_shapes(names: Sequence[str], seen: Sequence[Sequence[Type]]) -> list[Type]:
    """The types of arguments with a symbol for every dimension that was not always the same.

    Dimensions that were equal in each of the calls that were `seen` are taken for one.
    """
    symbols: dict[tuple[Dimension, ...], Dim] = {}
    made = []
    for position, (name, kind) in enumerate(zip(names, seen[-1], strict=True)):
        dims: list[Dimension] = []
        for axis in range(kind.rank):
            values = tuple(call[position].shape[axis] for call in seen)
            if len(set(values)) == 1:
                dims.append(values[0])
                continue
            if values not in symbols:
                symbols[values] = symbol(_symbol_name(name, axis))
            dims.append(symbols[values])
        made.append(tensor(kind.dtype, dims))
    return made


def _symbol_name(name: str, axis: int) -> str:
    kept = "".join(c if c.isalnum() or c == "_" else "_" for c in name)[:40]
    return f"{kept if kept[:1].isalpha() else 'x' + kept}_{axis}"


def examples_of(kinds: Sequence[Type], shapes: Sequence[Shape]) -> dict[str, int]:
    """A size for every symbol of the types: that of the arrays, where one is given plainly."""
    found = {name: USUAL for kind in kinds for name in sorted(kind.symbols())}
    for kind, shape in zip(kinds, shapes, strict=True):
        for extent, size in zip(kind.shape, shape, strict=True):
            if isinstance(extent, Dim) and extent is symbol(repr(extent)):
                found[repr(extent)] = size
    return found
