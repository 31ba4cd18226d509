"""Ops that write their own loops, where they bring device code instead: first what that launches,
then a loop kernel of all that the region computes from the result.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.emit import launches_of
from graphc.codegen.gpu.launch import Launch, Operand, Scratch
from graphc.codegen.gpu.library import code_launches
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import OPS, Loops
from graphc.loops.nest import Kernel

LoopKernel = Callable[[Graph, Config], Kernel]


def nest_launches(
    region: Graph, config: Config, loops: LoopKernel
) -> tuple[tuple[Launch, ...], int] | None:
    """The launches of a region of kind nest and the bytes of their scratch memory, or None where
    the op's loops suit a GPU.

    `loops` makes the kernel of a region of kind loop.
    """
    node = next(n for n in region.nodes if isinstance(n.op.lower, Loops))
    lower = node.op.lower
    position = {p.id: k for k, p in enumerate(region.params)}
    assert isinstance(lower, Loops)
    if lower.cuda is None or config.check_finite or any(n.id not in position for n in node.inputs):
        return None
    kept = [k for k, result in enumerate(region.results) if result is node]
    code = lower.cuda(node, config.strict, chip_of(config.target).simulated)
    if code is None or len(kept) > 1:
        return None
    scratch = Scratch()
    places: list[Operand] = [("in", position[n.id], 0) for n in node.inputs]
    places.append(("out", kept[0], 0) if kept else scratch.take(tensor_type(node).nbytes))
    launches = code_launches(node, code, places, scratch, config.strict)
    workspace = scratch.nbytes
    if len(kept) < len(region.results):
        more, nbytes = _computed(region, node, config, loops)
        launches += tuple(_moved(launch, workspace, places[-1]) for launch in more)
        workspace += nbytes
    return launches, workspace


def _computed(
    region: Graph, node: Node, config: Config, loops: LoopKernel
) -> tuple[tuple[Launch, ...], int]:
    """The loops of what the region computes from the node, which is their last parameter, and the
    bytes of their scratch memory; the parameter's memory is called "value".
    """
    op = OPS["param"]
    param = Node(region.next_id, op, (), op.coerce({"name": "value"}), node.type)

    def rewrite(old: Node, _: Rewriter) -> Node | None:
        return param if old.op is node.op and old.id == node.id else None

    rest = [k for k, result in enumerate(region.results) if result is not node]
    part = region.replace(results=tuple(region.results[k] for k in rest), result_names=())
    made = rebuild(part, rewrite)
    made = made.replace(params=(*region.params, param), next_id=region.next_id + 1)
    operands: list[Operand] = [("in", k, 0) for k in range(len(region.params))]
    operands += [("value", 0, 0), *(("out", k, 0) for k in rest)]
    return launches_of(loops(made, config), tuple(operands), chip_of(config.target))


def _moved(launch: Launch, nbytes: int, value: Operand) -> Launch:
    """The launch with its scratch memory further on, and the node's result where it lies."""
    moved = ((o[0], o[1] + nbytes, o[2]) if o[0] == "work" else o for o in launch.operands)
    operands = tuple(value if o[0] == "value" else o for o in moved)
    fields = {name: getattr(launch, name) for name in Launch.__match_args__}
    return Launch(**{**fields, "operands": operands})
