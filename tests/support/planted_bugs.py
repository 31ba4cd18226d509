"""Bugs planted in the compiler, each with a program that shows it, for what finds such bugs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import graphc as gc
from graphc.base.record import replace
from graphc.codegen import gemm, kernels
from graphc.codegen.gemm.blocking import block
from graphc.codegen.gemm.layout import Word
from graphc.codegen.llvm import scalar as llvm_scalar
from graphc.codegen.lowering import columns, folds, rows, split_reduction
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, unread
from graphc.ir.op import OPS, Effect
from graphc.ops.autodiff.vjp import expand_grad
from graphc.ops.reference.interpreter import evaluate_node
from graphc.passes import pipeline
from graphc.passes.devices import partition, schedule
from graphc.passes.fusion import decompose_gemv
from graphc.passes.loops import accumulate_after_loop, batch_scan_dots, hoist, merge_dots
from graphc.passes.memory import arena, plan
from graphc.passes.normalise import (
    choose_convolution,
    cse,
    dce,
    expand,
    fold,
    gradient,
    prune,
    simplify,
    trim,
)
from graphc.passes.trial import Trial

Plant = Callable[[Any], None]  # breaks the compiler, through a monkeypatch


def arrays(*shapes: tuple[int, ...], dtype: str = "f8") -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@dataclass
class Bug:
    """`plant(monkeypatch)` breaks the compiler; then `program`, a function of `arguments`, is
    compiled wrongly by `stage`, in a rewrite of a node of the op `op`."""

    name: str
    stage: str
    op: str
    plant: Plant
    program: Callable[..., Any]
    arguments: list[Any]
    symptom: str = "differs"
    options: dict[str, Any] = field(default_factory=dict)

    def planted(self, patch: Any) -> None:
        """Break the compiler; what has been compiled before is forgotten."""
        patch.setattr(kernels, "_SPECS", {})
        self.plant(patch)

    def trial(self) -> Trial:
        """The program as it is traced, with the variables that it uses."""
        gc.reset_container("planted")
        with gc.container("planted"):
            STATE["counter"] = gc.Variable(np.arange(3.0), name="counter")
        graph = gc.compile(self.program).graph(*self.arguments)
        from graphc.frontend.files.saved_variables import values_of

        state = {key: item.array for key, item in values_of(graph).items()}
        return Trial(graph, self.arguments, state, Config.create(**self.options))


BUGS: list[Bug] = []
STATE: dict[str, Any] = {}


def bug(
    stage: str, op: str, program: Any, arguments: list[Any], **more: Any
) -> Callable[[Plant], Plant]:
    """The decorated function plants a bug of its name."""

    def register(plant: Plant) -> Plant:
        name = plant.__name__
        BUGS.append(Bug(name, stage, op, plant, program, arguments, **more))
        return plant

    return register


def after_stage(patch: Any, name: str, change: Callable[[Node, Rewriter], Node | None]) -> None:
    """Have a stage rewrite its nodes once more at its end."""
    stages = list(pipeline.STAGES)
    at = pipeline.stage_named(name)
    original = stages[at]

    def broken(graph: Any, config: Config) -> Any:
        made = original.run(graph, config)
        if isinstance(made, Graph):
            return rebuild(made, change)
        return made.map(lambda part: rebuild(part, change))

    broken.__module__ = original.run.__module__
    stages[at] = replace(original, rewrite=broken, name=original.name, about=None)
    patch.setattr(pipeline, "STAGES", tuple(stages))


def forget() -> None:
    """Drop what this process keeps of plans that a bug has made."""
    gemm.plan.cache_clear()


# ------------------------------------------------------------------------------------ rewrites


@bug("simplify", "mul", lambda x, y: np.tanh(x * 2.0) + y * 1.0, arrays((3, 5), (3, 5)))
def two_is_a_unit(patch: Any) -> None:
    def rule(node: Node, r: Rewriter) -> Node | None:
        return node.inputs[0] if simplify.scalar_of(node.inputs[1]) in (1, 2) else None

    patch.setitem(simplify.RULES, "mul", (rule,))


@bug(
    "simplify",
    "transpose",
    lambda x: np.tanh(np.transpose(np.transpose(x, (1, 2, 0)), (0, 2, 1))),
    arrays((3, 3, 3)),
)
def transposes_composed_backwards(patch: Any) -> None:
    def rule(node: Node, r: Rewriter) -> Node | None:
        source = node.inputs[0]
        if not source.op.traits.permutes:
            return None
        perm = tuple(node.attrs["perm"][a] for a in source.attrs["perm"])
        return r.emit(node.op, source.inputs, {"perm": perm})

    patch.setitem(simplify.RULES, "transpose", (rule,))


@bug("fold", "mul", lambda x: x + gc.astype(3, "f8") * np.arange(4.0), arrays((4,)))
def folded_products_are_one_too_large(patch: Any) -> None:
    original = evaluate_node

    def evaluate(node: Node, values: list[Any]) -> Any:
        return original(node, values) + (node.op.name == "mul")

    patch.setattr(fold, "evaluate_node", evaluate)


@bug("cse", "sum", lambda x: (x.sum(axis=0) * 2, np.tanh(x.sum(axis=1))), arrays((4, 4)))
def equal_but_for_attributes(patch: Any) -> None:
    def key(node: Node) -> object:
        return node.op, node.type, tuple(n.id for n in node.inputs), len(node.attrs)

    patch.setattr(cse, "merge_key", key)


def counted(k: Any) -> Any:
    counter = STATE["counter"]
    counter.assign(counter.value + k)
    return counter.value * 2


@bug("dce", "assign", lambda x: counted(x).sum() * 0 + x, arrays((3,)), symptom="crashes")
def assigns_are_dead(patch: Any) -> None:
    def all_unread(graph: Graph) -> list[Node]:
        read = {n for node in graph.nodes for n in (*node.inputs, *node.after)}
        writes = [n for n in graph.nodes if n.op.effect is Effect.WRITE and n not in read]
        return [*writes, *unread(graph)]

    patch.setattr(dce, "unread", all_unread)


@bug(
    "prune",
    "scan",
    lambda x, y: gc.scan(lambda c, z: ((c[0] + z, c[1] * 0.5, c[2] - z), z), (y, y, y), x)[0][1:],
    arrays((4, 3), (3,)),
)
def another_carry_is_read(patch: Any) -> None:
    original = prune.narrow_loop

    def narrow(node: Node, read: set[int]) -> Any:
        made, places = original(node, read)
        return made, {k: 0 if isinstance(p, int) else p for k, p in places.items()}

    patch.setattr(prune, "narrow_loop", narrow)
    original_narrow = prune.narrow_branch
    patch.setattr(
        prune,
        "narrow_rule",
        lambda n: narrow if n.op.traits.loop else (original_narrow if n.op.traits.branch else None),
    )


@bug(
    "hoist",
    "scan",
    lambda x, w: gc.fori(0, 3, lambda k, c: np.tanh(c @ w) + np.tanh(w @ w) @ c, x),
    arrays((5, 5), (5, 5)),
)
def hoisted_without_its_tanh(patch: Any) -> None:
    original = hoist.with_operands

    def with_operands(loop: Node, number: int, moved: list[Node], outside: Any) -> Node:
        for node in moved:
            if node.op.name == "tanh":
                outside[node] = outside[node.inputs[0]]
        return original(loop, number, moved, outside)

    patch.setattr(hoist, "with_operands", with_operands)


@bug("gradient", "grad", lambda x: gc.grad(lambda x: (np.tanh(x) ** 2).sum())(x), arrays((4,)))
def gradients_are_twice_as_large(patch: Any) -> None:
    def twice(*given: Any) -> list[Any]:
        return [value + value for value in expand_grad(*given)]

    patch.setattr(gradient, "expand_grad", twice)


@bug("expand", "softmax", lambda x: gc.softmax(gc.relu(x) + 1, axis=0), arrays((4, 4)))
def composites_along_the_other_axis(patch: Any) -> None:
    original = expand.written_out

    def written_out(node: Node, r: Rewriter) -> Node:
        if node.op.name == "softmax":
            node = node.replace(attrs=node.op.coerce({**node.attrs, "axis": 1}))
        return original(node, r)

    patch.setattr(expand, "written_out", written_out)


@bug(
    "decompose_gemv",
    "matmul",
    lambda x, w: np.tanh(x.T * 2) @ w,
    arrays((600, 600), (600, 1), dtype="f4"),
)
def vectors_times_the_transpose(patch: Any) -> None:
    original = decompose_gemv.summed

    def summed(r: Rewriter, node: Node, matrix: Node, vector: Node, rows: bool) -> Node:
        return original(r, node, matrix, vector, not rows)

    patch.setattr(decompose_gemv, "summed", summed)


@bug(
    "merge_dots",
    "matmul",
    lambda x, w: (np.tanh(x[:4] @ w), x[4:8] @ w),
    arrays((8, 6), (6, 5), dtype="f4"),
)
def merged_products_in_the_wrong_order(patch: Any) -> None:
    original = merge_dots.flat_rows

    def flat_rows(array: Node, rows: Any, r: Rewriter) -> Node:
        return original(array, (0, rows[1] - rows[0]), r)

    patch.setattr(merge_dots, "flat_rows", flat_rows)


@bug(
    "accumulate_after_loop",
    "scan",
    lambda x, c: gc.scan(lambda c, z: (c + np.einsum("bi,bj->ij", z, z), z), c, x)[0],
    arrays((6, 1, 8), (8, 8)),
)
def totals_begin_at_twice_the_start(patch: Any) -> None:
    original = accumulate_after_loop._Totals.emit

    def emit(self: Any, r: Rewriter) -> Node:
        doubled = {k: r.emit(OPS["add"], (n, n)) for k, n in enumerate(self.loop.inputs[:1])}
        inputs = tuple(doubled.get(k, n) for k, n in enumerate(self.loop.inputs))
        self.loop = self.loop.replace(inputs=inputs)
        return original(self, r)

    patch.setattr(accumulate_after_loop._Totals, "emit", emit)


# ------------------------------------------------------------------------------------ bounds


@bug(
    "trim",
    "slice",
    lambda x, w: gc.conv(x, w, padding=2)[:, :, 1:-1, 1:-1],
    arrays((1, 2, 6, 6), (2, 2, 3, 3), dtype="f4"),
)
def trimmed_on_the_other_side(patch: Any) -> None:
    original = trim._smaller

    def smaller(node: Node, r: Rewriter) -> Node | None:
        made = original(node, r)
        if made is None:
            return None
        pad = made.inputs[0]
        low, high = list(pad.attrs["low"]), list(pad.attrs["high"])
        low[2], high[2] = low[2] - 1, high[2] + 1
        pad = r.emit(pad.op, pad.inputs, {**pad.attrs, "low": tuple(low), "high": tuple(high)})
        return r.emit(made.op, (pad, made.inputs[1]), made.attrs)

    patch.setattr(trim, "_smaller", smaller)


@bug(
    "choose_convolution",
    "conv",
    lambda x, w: gc.conv(x * 2, w, padding=1),
    arrays((1, 3, 7, 7), (2, 3, 3, 3), dtype="f4"),
)
def windows_begin_one_too_late(patch: Any) -> None:
    original = choose_convolution.without_padding

    def without_padding(x: Node) -> Any:
        source, low = original(x)
        return source, tuple(k - 1 for k in low)

    patch.setattr(choose_convolution, "without_padding", without_padding)


@bug(
    "batch_scan_dots",
    "scan",
    lambda x, w, c: gc.scan(lambda c, z: (np.tanh(c + z @ w), c), c, x)[0],
    arrays((5, 2, 4), (4, 4), (2, 4), dtype="f4"),
)
def all_steps_take_the_transpose(patch: Any) -> None:
    original = batch_scan_dots.all_steps

    def all_steps(node: Node, terms: list[str], *given: Any) -> Node:
        return original(node, [terms[0], terms[1][::-1], terms[2]], *given)

    patch.setattr(batch_scan_dots, "all_steps", all_steps)


# ------------------------------------------------------------------------------------ edges, order


def swapped(x: Any) -> Any:
    counter = STATE["counter"]
    before = counter.value
    counter.assign(x * 2)
    return before * 3


def without_edges(node: Node, r: Rewriter) -> Node | None:
    if not node.after:
        return None
    r.nodes.append(node.replace(after=()))
    return r.nodes[-1]


def early_assign(node: Node, r: Rewriter) -> Node | None:
    """A read that waits for nothing comes after the assign of what is there first."""
    return without_edges(node, r) if node.op.effect is Effect.WRITE else None


@bug("write_through", "assign", swapped, arrays((3,)), symptom="crashes")
def an_edge_is_lost(patch: Any) -> None:
    after_stage(patch, "write_through", early_assign)


@bug("recompute", "assign", swapped, arrays((3,)), symptom="crashes")
def an_edge_is_lost_late(patch: Any) -> None:
    after_stage(patch, "recompute", early_assign)


@bug(
    "partition",
    "recv",
    lambda x, y: on_second(np.tanh(x)) - np.exp(y),
    arrays((3,), (3,)),
    options={"devices": ["cpu:0", "cpu:1"]},
)
def a_message_takes_the_wrong_value(patch: Any) -> None:
    original = partition.Parts.bring

    def bring(self: Any, node: Node, device: Any, position: int) -> Node:
        if node.op.name == "tanh":
            node = node.inputs[0]
        return original(self, node, device, position)

    patch.setattr(partition.Parts, "bring", bring)


def on_second(x: Any) -> Any:
    with gc.device("cpu:1"):
        return x * 2.0


@bug(
    "schedule",
    "sub",
    lambda x: on_second(np.tanh(x)) - np.exp(x),
    arrays((3,)),
    symptom="crashes",
    options={"devices": ["cpu:0", "cpu:1"]},
)
def issued_before_its_operand(patch: Any) -> None:
    def by_start(graph: Graph, timeline: Any) -> Graph:
        return graph.replace(nodes=graph.nodes[::-1])

    patch.setattr(schedule, "by_start", by_start)
    patch.setattr(schedule, "in_issue_order", lambda p, *rest: p.map(lambda g: by_start(g, None)))


@bug("share_kernels", "fused", lambda x, y: (np.tanh(x) - y, np.tanh(y) - x), arrays((7,), (7,)))
def kernels_with_swapped_operands(patch: Any) -> None:
    def change(node: Node, r: Rewriter) -> Node | None:
        if not node.op.traits.kernel or len(node.inputs) != 2:
            return None
        r.nodes.append(node.replace(inputs=node.inputs[::-1]))
        return r.nodes[-1]

    after_stage(patch, "share_kernels", change)


# ------------------------------------------------------------------------------------ kernels


@bug(
    "codegen",
    "fused",
    lambda x, y: ((x @ y) * 2, np.tanh(x).sum(axis=0), x - y),
    arrays((11, 11), (11, 11)),
)
def differences_are_sums(patch: Any) -> None:
    original = llvm_scalar.INSTRUCTIONS["sub"]

    def instruction(w: Any, expr: Any, a: list[str]) -> str:
        text = original(w, expr, a)
        if expr.dtype.kind == "f":
            text = llvm_scalar.INSTRUCTIONS["abs"](w, expr, [text])
        return text

    patch.setitem(llvm_scalar.INSTRUCTIONS, "sub", instruction)


@bug("codegen", "fused", lambda x: np.tanh(x.sum(axis=0) - gc.relu(x)), arrays((13, 9)))
def sums_begin_at_one(patch: Any) -> None:
    original = folds.initial

    def initial(b: Any, lower: Any, element: Any) -> list[Any]:
        return [first + 1 for first in original(b, lower, element)]

    for room in (columns, folds, rows, split_reduction):
        patch.setattr(room, "initial", initial, raising=False)


@bug("codegen", "fused", lambda x: (np.exp(x).sum(axis=1), np.maximum(x, x[::-1])), arrays((7, 19)))
def the_larger_is_the_smaller(patch: Any) -> None:
    original = llvm_scalar.INSTRUCTIONS["max"]

    def instruction(w: Any, expr: Any, a: list[str]) -> str:
        larger = original(w, expr, a)
        return str(w.emit(f"fsub {llvm_scalar.TYPES[expr.dtype.name]} {a[0]}, {larger}"))

    patch.setitem(llvm_scalar.INSTRUCTIONS, "max", instruction)


@bug(
    "codegen",
    "fused",
    lambda x, y: ((x @ y).sum(axis=0), x @ y + 1, np.exp(x) @ y),
    arrays((23, 71), (71, 21), dtype="f4"),
)
def products_leave_out_a_column(patch: Any) -> None:
    def shorter(words: list[int], *given: Any) -> None:
        words[Word.K] -= 1
        block(words, *given)

    patch.setattr(gemm, "block", shorter)
    forget()


@bug(
    "plan",
    "fused",
    lambda x, y: (np.tanh(x @ y) @ y).sum(axis=0),
    arrays((17, 17), (17, 17)),
    symptom="crashes",
)
def everything_lies_at_one_place(patch: Any) -> None:
    patch.setattr(plan, "by_halves", lambda graph, config: None)
    patch.setattr(arena.Arena, "take", lambda *given: 0)
