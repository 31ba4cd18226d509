"""Graphs among the arguments of operators; sizes, checks and other numbers of Python."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import GraphError, LimitError
from graphc.formats.deciding_values import number, refuse
from graphc.formats.torch.interpret import Refusal, number_of
from graphc.formats.torch.records import Block, Operator
from graphc.formats.torch.table import aten, find, ordered
from graphc.frontend.transforms.control import cond, map, scan, while_loop
from graphc.ir.sizes import Size, greatest, least
from graphc.ops.record.value import Value
from graphc.ops.record.value import functions as f

# ------------------------------------------------------------------------------------ numbers


def _sym(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*operands: Any) -> Any:
        values = [number_of(v) for v in operands]
        refuse(all(isinstance(v, int | float | Size) for v in values), "takes numbers")
        if function is operator.pow:
            refuse(abs(values[1]) <= 64, f"exponent {values[1]}")
        made = function(*values)
        if isinstance(made, int) and abs(made) >= 1 << 63:
            raise GraphError("a size of more than 64 bits")
        return made

    return compute


for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "pos", "abs"):
    ordered(f"_operator.{_name}")(_sym(getattr(operator, _name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_"):
    ordered(f"_operator.{_name}")(_sym(getattr(operator, _name)))
for _name in ("ceil", "floor", "trunc", "sqrt"):
    ordered(f"math.{_name}")(_sym(getattr(math, _name)))
ordered("torch.sym_max", "builtins.max")(_sym(greatest))
ordered("torch.sym_min", "builtins.min")(_sym(least))
ordered("torch.sym_int")(_sym(lambda v: v if isinstance(v, Size) else int(v)))
ordered("torch.sym_float")(_sym(float))
ordered("torch.sym_not", "math.not")(_sym(operator.not_))
ordered("torch.sym_sqrt", "torch._sym_sqrt", "torch.sym_sqrt_")(_sym(math.sqrt))
ordered("torch.sym_ite")(lambda test, then, other: then if test else other)
ordered("torch.sym_sum")(lambda values: _sym(lambda *v: sum(v))(*values))


@ordered("_operator.getitem")
def getitem(values: Any, place: Any) -> Any:
    refuse(isinstance(values, list | tuple) and isinstance(place, int), "takes a list")
    return values[place]


@aten("sym_size")
def sym_size(x: Any, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


@aten("sym_numel", "numel")
def sym_numel(x: Any) -> int:
    return math.prod(x.shape)


@aten("sym_stride")
def sym_stride(x: Any, dim: int) -> int:
    return math.prod(x.shape[dim % x.ndim + 1 :])


@aten("sym_storage_offset")
def sym_storage_offset(x: Any) -> int:
    return 0


@aten("item", "_local_scalar_dense")
def item(x: Any) -> Any:
    return number(x)


@aten("is_nonzero")
def is_nonzero(x: Any) -> bool:
    return bool(number(x))


# ------------------------------------------------------------------------------------ checks


@aten("_assert_scalar")
def assert_scalar(x: Any, assert_msg: str = "") -> None:
    if not number_of(x):
        raise GraphError(f"what the program was exported for does not hold: {assert_msg[:200]}")


@ordered("aten._assert_async", "aten._functional_assert_async", "aten._assert_tensor_metadata")
@ordered("aten._linalg_check_errors")
@ordered("aten.sym_constrain_range", "aten.sym_constrain_range_for_size", "aten._print")
def unchecked(*facts: Any) -> None:
    """Conditions on elements and types, which PyTorch checks while it runs."""


@ordered("higher_order.with_effects")
def with_effects(token: Any, effect: Operator, *operands: Any, call: Any) -> Any:
    """A check, kept in its place among others by a token, which holds nothing."""
    rule = find(effect.name)
    refuse(rule is not None and rule.function is unchecked, f"{effect.name} has effects")
    return token, None


# ------------------------------------------------------------------------------------ graphs


@ordered("higher_order.cond")
def cond_(pred: Any, then: Block, other: Block, operands: Sequence[Any] = (), *, call: Any) -> Any:
    def branch(block: Block) -> Callable[[], Any]:
        return lambda: tuple(call.run(block, *operands))

    if not isinstance(pred, Value):
        return branch(then if pred else other)()
    try:
        return cond(f.astype(f.reshape(pred, ()), bool), branch(then), branch(other))
    except (Refusal, LimitError):
        raise
    except GraphError:  # the branches differ in shape: only a run can tell which it is
        return branch(then if number(pred) else other)()


@ordered("higher_order.while_loop")
def while_(
    test: Block, body: Block, carried: Sequence[Any], more: Sequence[Any] = (), *, call: Any
) -> Any:
    state = tuple(f.full((), v) if isinstance(v, int | float | Size) else v for v in carried)

    def going(values: Any) -> Any:
        (made,) = call.run(test, *values, *more)
        return f.astype(f.reshape(made, ()), bool)

    return tuple(while_loop(going, lambda v: tuple(call.run(body, *v, *more)), state))


@ordered("higher_order.scan")
def scan_(
    combine: Block, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = (), *, call: Any
) -> Any:
    def step(state: Any, rows: Any) -> Any:
        made = call.run(combine, *state, *rows, *more)
        return tuple(made[: len(init)]), tuple(made[len(init) :])

    carry, rows = scan(step, tuple(init), tuple(xs))
    return (*carry, *rows)


@ordered("higher_order.map_impl")
def map_(body: Block, xs: Sequence[Any], more: Sequence[Any] = (), *, call: Any) -> Any:
    return map(lambda rows: tuple(call.run(body, *rows, *more)), tuple(xs))


@ordered("higher_order.wrap_with_set_grad_enabled")
def wrapped(enabled: bool, block: Block, *operands: Any, call: Any) -> Any:
    return tuple(call.run(block, *operands))


@ordered("higher_order.wrap_with_autocast")
def wrapped_autocast(
    device: str, dtype: Any, enabled: bool, cache: Any, block: Block, *operands: Any, call: Any
) -> Any:
    refuse(not enabled, "autocast: program.run_decompositions({}) makes casts of it")
    return tuple(call.run(block, *operands))


@ordered("higher_order.tag_activation_checkpoint", "higher_order.invoke_subgraph")
def subgraph(block: Block, *operands: Any, call: Any) -> Any:
    return tuple(call.run(block, *(v for v in operands if not isinstance(v, str))))
