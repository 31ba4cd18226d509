"""Which constants contractions read as panels, and whether a region was packed for this machine."""

from __future__ import annotations

from typing import Any

from graphc.codegen import gemm as contract
from graphc.codegen.llvm.target import named
from graphc.codegen.lowering.contraction import Form, form_of
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import root
from graphc.ir.op import Contraction


def hardware_for(config: Config) -> contract.Hardware:
    """The vector unit of the machine that a config compiles for, and how it is to sum."""
    _, _, cpu = config.target.partition(":")
    found = contract.hardware_of(named(cpu)) if cpu else contract.host_target()
    return found._replace(brain=False, ordered=True) if config.parity else found


def packable(node: Node, config: Config) -> tuple[int, contract.Panels] | None:
    """The operand of a fused contraction that is better packed ahead, and its panels.

    It is a constant that nothing else in the region reads. Panels are read in order however the
    constant lies: all gain from that but a single row times what a near cache holds.
    """
    if not any(root(source).op.traits.constant for source in node.inputs):
        return None
    region = node.regions[0]
    if any(n.op.traits.unpacks for n in region.nodes):
        return None
    form = form_of(region)
    first, second = constants = _constant(node, form, 0), _constant(node, form, 1)
    contraction = form.normal()._replace(prepacked=(first is not None, second is not None))
    panels = contract.panels_of(contraction, hardware_for(config))
    if panels is None:
        return None
    source, position = form.reads[panels.operand].source, constants[panels.operand]
    if position is None:
        return None
    nbytes = tensor_type(source).nbytes
    if (
        panels.rows < tuned.packed_ahead_rows
        and panels.together < 4  # bytes one by one would be widened one by one
        and nbytes < tuned.packed_ahead_share * hardware_for(config).l2
    ):
        return None
    return (position, panels) if _is_read_once(region, source) else None


def _constant(node: Node, form: Form, operand: int) -> int | None:
    """Which input of a fused contraction an operand is, if a constant that is worth packing."""
    source = form.reads[operand].source
    if form.computed[operand]:
        return None
    position = node.regions[0].params.index(source)
    constant = root(node.inputs[position]).op.traits.constant
    return position if constant and tensor_type(source).nbytes >= tuned.packed_ahead_bytes else None


def _is_read_once(region: Graph, source: Node) -> bool:
    """Only a chain of views leads from a parameter to the contraction."""
    node = source
    while not isinstance(node.op.lower, Contraction):
        readers = [(n, k) for n in region.nodes for k, i in enumerate(n.inputs) if i is node]
        if len(readers) != 1 or node in region.results:
            return False
        node = readers[0][0]
    return True


def layout_of(panels: contract.Panels) -> dict[str, Any]:
    """The attributes of `pack` and `unpack`."""
    return {
        name: getattr(panels, name)
        for name in ("batch", "k", "n", "offset", "columns", "step", "together")
    }


def stored_in(source: Node) -> Node:
    """The parameter whose memory holds a source of a contraction."""
    return source.inputs[0] if source.op.traits.unpacks else source


def check_packed(form: Form, config: Config) -> bool:
    """Does the contraction read panels? Raises GraphError for panels of another machine."""
    unpacked = [k for k, read in enumerate(form.reads) if read.source.op.traits.unpacks]
    if not unpacked:
        return False
    panels = contract.panels_of(form.normal(), hardware_for(config))
    attrs = form.reads[unpacked[0]].source.attrs
    if panels is None or [panels.operand] != unpacked:
        raise GraphError("a contraction cannot read these panels")
    if any(attrs[name] != value for name, value in layout_of(panels).items()):
        raise GraphError("constants are packed for another machine", hint="compile the graph anew")
    return True
