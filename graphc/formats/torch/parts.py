"""A graph of AOT autograd in parts, where there is something that PyTorch has to run itself.

    sin -> custom op -> cos        graphc(sin)  ->  PyTorch(custom op)  ->  graphc(cos)

These are operators without a rule (those of other libraries, whose sizes and gradients PyTorch was
told), values that graphc has no arrays for (sparse tensors, other devices), and nodes that a rule
refuses when the graph is imported for the first time.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.config import Config
from graphc.errors import GraphHint
from graphc.formats.torch.compiled_graph import CompiledGraph
from graphc.formats.torch.interpret import Refusal
from graphc.formats.torch.live import Reader, element_name, location_of, target_of, torch_package
from graphc.formats.torch.records import ELEMENTS
from graphc.formats.torch.table import find, why_not

_told = set[str]()
_OWN_NAME = "graphc_name"  # of a node in the graph that is parted, whatever its part calls it
_ELEMENTS = frozenset(name for name in ELEMENTS.values() if "float8" not in name)


class _Refused(Exception):
    """A node of the whole graph that cannot be imported."""

    def __init__(self, node: Any, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class PartedGraph:
    """A graph as a function of tensors and numbers: CompiledGraph, and PyTorch for the rest.

    `options` are those of CompiledGraph.  Each operator that is left to PyTorch is told once, by a
    GraphHint that names its line and why.
    """

    def __init__(self, module: Any, config: Config, shares: bool) -> None:
        self.module = module
        self.config = config
        self.shares = shares
        self.nodes = {node.name: node for node in module.graph.nodes}
        for node in self.nodes.values():
            node.meta[_OWN_NAME] = node.name
        self.left: dict[Any, str] = {}
        for node, reason in _left(module).items():
            self._leave(node, reason)
        self.lock = threading.Lock()
        self.run = self._parts()

    def __call__(self, *values: Any) -> Any:
        while True:
            try:
                return self.run(*values)
            except _Refused as refused:
                with self.lock:
                    if refused.node not in self.left:
                        self._leave(refused.node, refused.reason)
                        self.run = self._parts()

    def _leave(self, node: Any, reason: str) -> None:
        """Have PyTorch run a node; each reason is told once."""
        self.left[node] = reason
        if reason not in _told:
            _told.add(reason)
            text = f"PyTorch runs what graphc does not: {reason}"
            warnings.warn_explicit(text, GraphHint, *(location_of(node) or ("<unknown>", 1)))

    def _compiled(self, part: Any) -> Callable[..., Any]:
        """A part as a function. Raises _Refused for a node that cannot be imported."""
        run = CompiledGraph(part, self.config, self.shares)
        names = {node.name: node.meta.get(_OWN_NAME) for node in part.graph.nodes}

        def call(*values: Any) -> Any:
            try:
                return run(*values)
            except Refusal as error:
                node = self.nodes.get(names.get(error.outer.outputs[0].name))
                if node is None:  # one that graphc added
                    raise
                raise _Refused(node, error.message) from error

        return call

    def _parts(self) -> Callable[..., Any]:
        if not self.left:
            return self._compiled(self.module)
        levels = _levels(self.module, self.left)
        if all(level % 2 for level in levels.values()):
            return self.module.forward  # type: ignore[no-any-return]
        from torch.fx.passes.split_module import split_module

        parts = split_module(self.module, None, levels.__getitem__)
        for name, part in list(parts.named_children()):
            level = name.removeprefix("submod_")
            if level.isdigit() and int(level) % 2 == 0:
                _replace(parts, name, self._compiled(part))
        parts.recompile()
        return parts.forward  # type: ignore[no-any-return]


def _left(module: Any) -> dict[Any, str]:
    """The nodes that PyTorch has to run, and why."""
    import graphc.formats.torch.operators  # noqa: F401  (fills the table)

    reader = Reader()
    made: dict[Any, str] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or reader.is_check(node):
            continue
        target = target_of(node.target)
        if find(target) is None:
            made[node] = f"{target} has no rule{why_not(target)}"
        reasons = [_why_foreign(v) for v in (node, *node.all_input_nodes)]
        if node not in made and any(reasons):
            made[node] = f"{target}: {next(filter(None, reasons))}"
    return made


def _why_foreign(node: Any) -> str:
    """Why graphc has no array for a value; nothing for one that it has."""
    torch = torch_package()
    value = node.meta.get("val")
    for tensor in value if isinstance(value, list | tuple) else (value,):
        if isinstance(tensor, torch.Tensor):
            if tensor.layout is not torch.strided:
                return f"a tensor in layout {element_name(tensor.layout)}"
            if tensor.device.type != "cpu":
                return f"a tensor on {tensor.device}"
            if element_name(tensor.dtype) not in _ELEMENTS:
                return f"elements of {element_name(tensor.dtype)}"
    return ""


def _levels(module: Any, left: Mapping[Any, str]) -> dict[Any, int]:
    """The part of each node: parts of PyTorch have odd numbers, and each reads earlier ones."""
    levels: dict[Any, int] = {}
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        before = [levels[given] for given in node.all_input_nodes if given in levels]
        level = max(before, default=0)
        # Several results of one node stay with it: a list does not leave its part.
        is_left = levels[node.args[0]] % 2 if _takes_apart(node) else node in left
        levels[node] = level + (level % 2 != is_left)
    return levels


def _takes_apart(node: Any) -> bool:
    return node.target is operator.getitem and node.args[0].op == "call_function"


def _replace(parts: Any, name: str, run: Callable[..., Sequence[Any]]) -> None:
    """Call a function where a graph calls one of its modules."""
    node = next(n for n in parts.graph.nodes if n.op == "call_module" and n.target == name)
    outputs = next(n for n in getattr(parts, name).graph.nodes if n.op == "output").args[0]

    def call(*values: Any) -> Any:
        made = run(*values)
        return made if isinstance(outputs, list | tuple) else made[0]

    call.__name__ = name
    with parts.graph.inserting_before(node):
        node.replace_all_uses_with(parts.graph.call_function(call, node.args))
    parts.graph.erase_node(node)
