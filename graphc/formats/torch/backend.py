"""`torch.compile(model, backend="graphc")`: graphs of TorchDynamo, forward and backward.

AOT autograd makes a graph of the forward pass and one of the backward pass, in operators of ATen
without side effects; each becomes a program whose inputs are tensors, compiled for their sizes.
Tensors go in and come out without a copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import GraphError
from graphc.formats.kinds import Kind
from graphc.formats.torch.decompositions import of_graphs, with_right_losses
from graphc.formats.torch.interpret import nodes_of
from graphc.formats.torch.live import Reader, array_of, kind_of, tensor_of, torch_package
from graphc.formats.torch.model import TorchModel
from graphc.formats.torch.operators.random import SEED
from graphc.formats.torch.records import Block, Name, Program
from graphc.formats.torch.table import find


@refusing
def torch_backend(module: Any, examples: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend: `torch.compile(model, backend=gc.torch_backend)`, or backend="graphc".

    `torch.compile(..., options={...})` are options of gc.compile.  Raises GraphError that lists
    every operator that cannot be imported.
    """
    torch_package()
    from torch._dynamo.backends.common import aot_autograd

    config = Config.create(**(options.pop("options", None) or {}), **options)

    def compiler(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        from functorch.compile import make_boxed_func

        return make_boxed_func(CompiledGraph(graph, inputs, config))  # type: ignore[no-any-return]

    made: Callable[..., Any] = aot_autograd(fw_compiler=compiler, decompositions=of_graphs)(
        with_right_losses(module), examples
    )
    return made


class CompiledGraph:
    """A graph as a function of tensors; each combination of whole numbers is a program."""

    def __init__(self, module: Any, inputs: Sequence[Any], config: Config) -> None:
        reader = Reader()
        self.block = reader.block(module)
        # PyTorch computes with no tensor while it calls a backend: read when the first call comes.
        self.held = reader.held
        self.config = config
        self.kinds = [kind_of(value) for value in inputs]
        torch = torch_package()
        self.is_number = [not isinstance(value, torch.Tensor) for value in inputs]
        read = _read(self.block)
        self.is_tensor = [
            name in read and not number for name, number in zip(self.block.inputs, self.is_number)
        ]
        self.draws = any("call" in (_names(node.target)) for node in self.block.nodes)
        self.numbers = _numbers(module)
        self.models: dict[tuple[Any, ...], TorchModel] = {}
        self.lock = threading.Lock()
        # Results that are inputs are handed back; the others come from the program.
        places = {name: k for k, name in enumerate(self.block.inputs)}
        self.plan = [
            places.get(v.name, -1) if isinstance(v, Name) else None for v in self.block.outputs
        ]
        self.made = [v for v, place in zip(self.block.outputs, self.plan) if place == -1]

    def __call__(self, *values: Any) -> list[Any]:
        numbers = tuple(v for v, number in zip(values, self.is_number) if number)
        model = self.models.get(numbers) or self._model(numbers)
        arrays = [array_of(v) for v, tensor in zip(values, self.is_tensor) if tensor]
        if self.draws:
            torch = torch_package()
            arrays.append(array_of(torch.randint(1 << 62, ())))
        results = iter(model.run(arrays) if self.made else ())
        made = []
        for k, (place, fixed) in enumerate(zip(self.plan, self.block.outputs)):
            if place is None:
                made.append(fixed)
            elif place >= 0:
                made.append(values[place])
            else:
                result = next(results)
                if result is None:
                    raise self._without_gradient(fixed.name)
                made.append(result.item() if k in self.numbers else tensor_of(result))
        return made

    def _without_gradient(self, name: str) -> GraphError:
        """The error for a result that only a backward pass reads, and that has no value here."""
        nodes = {whole.name: node for node in nodes_of(self.block) for whole in node.outputs}
        maker = nodes[name]
        while maker.target == "_operator.getitem":
            maker = nodes[maker.inputs[0][1].name]
        return GraphError(
            f"{maker.target} cannot be differentiated: what its gradient needs is not made",
            hint="call it under torch.no_grad(), or leave the layer to PyTorch:"
            " torch.compiler.disable",
        )

    def _model(self, numbers: tuple[Any, ...]) -> TorchModel:
        with self.lock:
            if numbers not in self.models:
                self.models[numbers] = TorchModel(self._program(numbers), self.config)
            return self.models[numbers]

    def _program(self, numbers: tuple[Any, ...]) -> Program:
        given = iter(numbers)
        fixed: dict[str, Any] = {name: array_of(tensor) for name, tensor in self.held.items()}
        kinds: dict[str, Kind] = {}
        parts = zip(self.block.inputs, self.kinds, self.is_tensor, self.is_number)
        for name, kind, tensor, number in parts:
            if tensor:
                kinds[name] = kind
            elif number:
                fixed[name] = next(given)
        if self.draws:
            kinds[SEED] = Kind("tensor", "int64", ())
        block = Block(self.block.inputs, self.block.nodes, tuple(self.made))
        names = tuple(f"{v.name}_{k}" for k, v in enumerate(self.made))
        return Program("graph", block, kinds, fixed, names)


def _names(target: str) -> frozenset[str]:
    rule = find(target)
    random = rule is not None and rule.function.__module__.endswith(".random")
    return frozenset({"call"}) if random else frozenset()


def _read(block: Block) -> set[str]:
    """The names that the nodes of a graph read; tokens, which nothing reads, come as None."""

    def names(value: Any) -> Iterator[str]:
        if isinstance(value, Name):
            yield value.name
        for item in value if isinstance(value, list) else ():
            yield from names(item)

    return {name for node in nodes_of(block) for _, v in node.inputs for name in names(v)}


def _numbers(module: Any) -> set[int]:
    """The positions of results that are numbers."""
    torch = torch_package()
    output = next(node for node in module.graph.nodes if node.op == "output")
    given = output.args[0]
    listed = given if isinstance(given, list | tuple) else (given,)
    return {
        k
        for k, v in enumerate(listed)
        if isinstance(v, torch.fx.Node)
        and not isinstance(v.meta.get("val", torch.empty(0)), torch.Tensor)
    }
