"""Control flow: ops that hold the code they run in closed regions.

Everything a region uses is an operand.  Operands and results are tensors or stacks, so a loop over
a nest of containers carries its leaves.

    while   carries ──> test ──> body ──┐      scan   carries, x[0] ──> body ──> carries, y[0]
               ^                        │             carries, x[1] ──> body ──> carries, y[1]
               └────────────────────────┘             ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.literal import literal
from graphc.ir.op import EXTENT, OPS, Attr, Composite, Structural
from graphc.ir.traits import Traits
from graphc.ir.types import BOOL, AnyType, TupleType, Type, tensor, tuple_type
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import by_the_sweep
from graphc.ops.record.families import define, require
from graphc.ops.record.value import Value, functions

Regions = tuple[Graph, ...]
FLAG = tensor(BOOL)


def results_type(types: Sequence[AnyType]) -> AnyType:
    """The type of a region op with these results: bare for one, else a tuple."""
    return types[0] if len(types) == 1 else tuple_type(types)


def results_of(made: Sequence[Any]) -> Any:
    """The value of a region op with these results."""
    return made[0] if len(made) == 1 else tuple(made)


def param_node(number: int, kind: AnyType, name: str = "") -> Node:
    """Parameter `number` of a region under construction; its id is its number."""
    op = OPS["param"]
    return Node(number, op, (), op.coerce({"name": name or f"p{number}"}), kind)


# --------------------------------------------------------------------------------------- type rules


def _listed(types: Sequence[AnyType]) -> str:
    return f"({', '.join(map(str, types))})"


def _require_flat(name: str, types: Sequence[AnyType]) -> None:
    for kind in types:
        require(
            not isinstance(kind, TupleType),
            f"{name} takes tensors and stacks, got {kind}",
            hint="pass the parts of a tuple one by one",
        )


def _require_params(name: str, part: str, region: Graph, types: Sequence[AnyType]) -> None:
    expected = tuple(p.type for p in region.params)
    require(
        expected == tuple(types),
        f"{name}: the {part} takes {_listed(expected)} but is given {_listed(types)}",
        hint="a region is closed: it has one parameter for each operand it is given",
    )


def infer_branches(name: str, regions: Regions, operands: Sequence[AnyType]) -> AnyType:
    """One result type for branches that take the same operands."""
    _require_flat(name, operands)
    for number, region in enumerate(regions):
        _require_params(name, f"branch {number}", region, operands)
        _require_flat(name, region.signature[1])
    first = regions[0].signature[1]
    for number, region in enumerate(regions):
        made = region.signature[1]
        require(
            made == first,
            f"{name}: branch 0 returns {_listed(first)}, branch {number} returns {_listed(made)}",
            hint="all branches must return the same dtypes and shapes",
        )
    return results_type(first)


def _infer_cond(*types: AnyType, regions: Regions) -> AnyType:
    require(len(types) > 0, "cond needs a predicate")
    require(types[0] is FLAG, f"the predicate of cond must be bool[], got {types[0]}")
    return infer_branches("cond", regions, types[1:])


def _infer_switch(*types: AnyType, regions: Regions) -> AnyType:
    require(len(regions) > 0, "switch needs at least one branch")
    index = types[0] if types else None
    require(
        isinstance(index, Type) and index.shape == () and index.dtype.name in ("i32", "i64"),
        f"the index of switch must be i32[] or i64[], got {index}",
    )
    return infer_branches("switch", regions, types[1:])


def _require_carries(
    name: str, body: Graph, carries: Sequence[AnyType], made: Sequence[AnyType]
) -> None:
    for number, (before, after) in enumerate(zip(carries, made, strict=True)):
        require(
            before is after,
            f"{name}: carry {number} ({body.params[number].attrs['name']}) is {before} but the "
            f"body returns {after} for it",
            hint="a carry keeps its dtype and shape: cast the initial value or the new one",
        )


def _require_count(name: str, what: str, count: int, rest: int) -> None:
    require(0 <= count <= rest, f"{name}: {count} {what} of {rest} operand(s)")


def _require_invariants(name: str, types: Sequence[AnyType]) -> None:
    for kind in types:
        require(isinstance(kind, Type), f"{name}: a {kind} can only be carried")


def _infer_while(*types: AnyType, regions: Regions, carries: int) -> AnyType:
    _require_count("while", "carries", carries, len(types))
    _require_flat("while", types)
    _require_invariants("while", types[carries:])
    test, body = regions
    _require_params("while", "test", test, types)
    _require_params("while", "body", body, types)
    verdict = test.signature[1]
    require(
        verdict == (FLAG,), f"while: the test must return one bool[], it returns {_listed(verdict)}"
    )
    made = body.signature[1]
    require(
        len(made) == carries, f"while: the body returns {len(made)} value(s) for {carries} carries"
    )
    _require_carries("while", body, types[:carries], made)
    return results_type(types[:carries])


def _slice_of(kind: AnyType, length: Any, number: int) -> Type:
    if not isinstance(kind, Type) or not kind.shape or kind.shape[0] != length:
        raise TypeRuleError(
            f"scan: operand {number} must have {length} slices along its first axis, got {kind}"
        )
    return tensor(kind.dtype, kind.shape[1:])


def scan_operands(
    types: Sequence[AnyType], carries: int, scanned: int, length: Any
) -> tuple[AnyType, ...]:
    """What the body of a scan takes: carries, one slice of each x, invariants."""
    end = carries + scanned
    slices = [_slice_of(types[k], length, k) for k in range(carries, end)]
    return (*types[:carries], *slices, *types[end:])


def _infer_scan(
    *types: AnyType, regions: Regions, carries: int, scanned: int, length: Any, reverse: bool
) -> AnyType:
    body = regions[0]
    _require_count("scan", "carries", carries, len(types))
    _require_count("scan", "scanned operands", scanned, len(types) - carries)
    require(not isinstance(length, int) or length >= 0, f"scan: negative length {length}")
    _require_flat("scan", types)
    _require_invariants("scan", types[carries + scanned :])
    _require_params("scan", "body", body, scan_operands(types, carries, scanned, length))
    made = body.signature[1]
    require(
        len(made) >= carries, f"scan: the body returns {len(made)} value(s) for {carries} carries"
    )
    _require_carries("scan", body, types[:carries], made[:carries])
    ys = []
    for kind in made[carries:]:
        if not isinstance(kind, Type):
            raise TypeRuleError(f"scan: the body can carry a {kind}, but not stack it")
        ys.append(tensor(kind.dtype, (length, *kind.shape)))
    return results_type((*types[:carries], *ys))


# -------------------------------------------------------------------------------------- references

Run = Callable[[Graph, list[Any]], list[Any]]


def _run_cond(pred: Array, *operands: Array, regions: Regions, run: Run) -> Any:
    return results_of(run(regions[0 if pred else 1], list(operands)))


def _run_switch(index: Array, *operands: Array, regions: Regions, run: Run) -> Any:
    return results_of(run(regions[min(max(int(index), 0), len(regions) - 1)], list(operands)))


def _run_while(*operands: Array, regions: Regions, run: Run, carries: int) -> Any:
    test, body = regions
    state, invariants = list(operands[:carries]), list(operands[carries:])
    while run(test, state + invariants)[0]:
        state = run(body, state + invariants)
    return results_of(state)


def _run_scan(
    *operands: Array,
    regions: Regions,
    run: Run,
    carries: int,
    scanned: int,
    length: int,
    reverse: bool,
) -> Any:
    body = regions[0]
    end = carries + scanned
    state, xs = list(operands[:carries]), operands[carries:end]
    made: list[list[Any]] = [[] for _ in body.results[carries:]]
    for step in reversed(range(length)) if reverse else range(length):
        state = run(body, [*state, *(x[step] for x in xs), *operands[end:]])
        for rows, row in zip(made, state[carries:], strict=True):
            rows.append(row)
        state = state[:carries]
    ys = []
    for rows, result in zip(made, body.results[carries:], strict=True):
        kind = result.type
        assert isinstance(kind, Type)
        ordered = rows[::-1] if reverse else rows
        ys.append(np.stack(ordered) if rows else np.empty((0, *kind.dims), kind.dtype.numpy))
    return results_of([*state, *ys])


# ------------------------------------------------------------------------------------------ switch


def expand_switch(index: Value, *operands: Value, regions: Regions) -> Any:
    """A binary tree of conds over the index: regions [0, middle) and [middle, count)."""
    trace = index.owner
    nodes = tuple(o.node for o in operands)
    if len(regions) == 1:
        return trace.emit(OPS["call"], nodes, {"name": "branch"}, regions=regions)
    middle = len(regions) // 2
    low, high = regions[:middle], regions[middle:]
    chosen = functions.less(index, middle).node
    if len(regions) == 2:
        return trace.emit(OPS["cond"], (chosen, *nodes), {}, regions=regions)
    branches = (_sub_switch(index.node.type, low, 0), _sub_switch(index.node.type, high, middle))
    return trace.emit(OPS["cond"], (chosen, index.node, *nodes), {}, regions=branches)


def _sub_switch(index: AnyType, regions: Regions, first: int) -> Graph:
    """A branch (index, operands) that switches on index - first among some of the regions."""
    types = (index, *(p.type for p in regions[0].params))
    params = tuple(param_node(k, kind) for k, kind in enumerate(types))
    builder = Builder(len(params))
    chosen = params[0]
    if len(regions) > 1 and first:
        assert isinstance(index, Type)
        offset = builder.emit(OPS["const"], (), {"value": literal(first, index.dtype)})
        chosen = builder.emit(OPS["sub"], (chosen, offset))
    if len(regions) == 1:
        made = builder.emit(OPS["call"], params[1:], {"name": "branch"}, regions=regions)
    else:
        made = builder.emit(OPS["switch"], (chosen, *params[1:]), {}, regions=regions)
    results: tuple[Node, ...] = (made,)
    if isinstance(made.type, TupleType):
        count = len(made.type.elements)
        results = tuple(builder.emit(OPS["item"], (made,), {"index": k}) for k in range(count))
    return Graph("branch", params, builder.nodes, results)


# ---------------------------------------------------------------------------------------- the table

cond = define(
    "cond",
    batch=by_the_sweep,
    infer=_infer_cond,
    reference=_run_cond,
    lower=Structural(),
    dtypes=("bool",),
    variadic=True,
    regions=2,
    doc="Run the first region on the operands if the predicate holds, else the second.",
    traits=Traits(branch=True),
)

switch = define(
    "switch",
    infer=_infer_switch,
    reference=_run_switch,
    lower=Composite(expand_switch),
    dtypes=("i32", "i64"),
    variadic=True,
    regions=-1,
    doc="Run the region of this number on the operands; the index is clamped to the regions.",
    traits=Traits(branch=True),
)

while_ = define(
    "while",
    batch=by_the_sweep,
    infer=_infer_while,
    reference=_run_while,
    lower=Structural(),
    attrs=(Attr("carries", "int", within=EXTENT),),
    variadic=True,
    regions=2,
    doc="While test(carries, invariants) holds, carries = body(carries, invariants). The first "
    "`carries` operands are the initial carries, the others the invariants.",
    traits=Traits(loop=True, tested=True),
)

scan = define(
    "scan",
    batch=by_the_sweep,
    infer=_infer_scan,
    reference=_run_scan,
    lower=Structural(),
    attrs=(
        Attr("carries", "int", within=EXTENT),
        Attr("scanned", "int", within=EXTENT),
        Attr("length", "dim", within=EXTENT),
        Attr("reverse", "bool", False),
    ),
    variadic=True,
    regions=1,
    doc="Run the body on (carries, slices, invariants) for each of `length` slices of the "
    "`scanned` operands along their first axis, from the last to the first if `reverse`. It "
    "returns the next carries and slices of further results: the op gives the final carries and "
    "these slices stacked, slice t at row t.",
    traits=Traits(loop=True, counted=True),
)
