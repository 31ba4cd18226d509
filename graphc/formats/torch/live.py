"""Programs in memory: graphs of torch.fx become the records that files become.

PyTorch is imported here alone, and only when one of these functions is called.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record, replace
from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import FeedError, GraphError
from graphc.formats.kinds import Kind
from graphc.formats.torch.decompositions import simplified
from graphc.formats.torch.exporting import export_refused, warn_of_dropout
from graphc.formats.torch.model import TorchModel
from graphc.formats.torch.records import (
    OF_MEMORY,
    Array,
    Block,
    Element,
    Location,
    Name,
    Node,
    Operator,
    Program,
    Whole,
    user_line,
)
from graphc.ir.types import Dim, symbol
from graphc.seams.torch import argument_names

_CHECK = "aten._linalg_check_errors.default"


def torch_package() -> Any:
    try:
        import torch
    except ImportError:
        raise GraphError("this needs PyTorch", hint="pip install torch") from None
    return torch


def array_of(tensor: Any) -> Array:
    """A tensor of the CPU as an array over the same memory. Raises GraphError for another one."""
    torch = torch_package()
    if tensor.dtype is torch.bfloat16 or tensor.is_neg() or tensor.is_conj():
        return _array_of_bits(tensor)
    try:
        return tensor.detach().numpy()  # type: ignore[no-any-return]
    except (TypeError, RuntimeError):
        raise GraphError(
            f"a tensor is on {tensor.device} in layout {tensor.layout}",
            hint="move the module to the CPU: module.cpu()",
        ) from None


def _array_of_bits(tensor: Any) -> Array:
    """That of a tensor that NumPy has no name for, or that says to negate or conjugate it."""
    torch = torch_package()
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype is not torch.bfloat16:
        return array_of(plain)
    import ml_dtypes

    return array_of(plain.view(torch.int16)).view(ml_dtypes.bfloat16)


def tensor_of(array: Array) -> Any:
    """An array as a tensor over the same memory."""
    torch = torch_package()
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.kind == "V":  # bfloat16
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def element_name(kind: Any) -> str:
    """The name of an element type of PyTorch."""
    return str(kind).removeprefix("torch.")


# ------------------------------------------------------------------------------------ graphs


def target_of(function: Any) -> str:
    """What files call an operator."""
    torch = torch_package()
    if isinstance(function, type(torch.ops.aten.add.Tensor)):
        return str(function)
    module = str(function.__module__).removeprefix("torch._ops.").removeprefix("torch.ops.")
    return f"{module}.{function.__name__}"


class Reader:
    """Turns the graph of a module of torch.fx into a block; tensors that it holds are collected.

    Tokens, which keep checks in their order, are those that a graph was given: checks make none.
    """

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.tokens: dict[Any, Any] = {}

    def block(self, module: Any) -> Block:
        inputs: list[str] = []
        nodes: list[Node] = []
        outputs: Sequence[Any] = ()
        for node in module.graph.nodes:
            if node.op == "placeholder":
                inputs.append(node.name)
            elif node.op == "output":
                given = node.args[0]
                outputs = given if isinstance(given, list | tuple) else (given,)
            elif node.op == "call_function" and not self.is_check(node):
                nodes.append(self._node(len(nodes), node, module))
            elif node.op not in ("get_attr", "call_function"):
                raise GraphError(f"the graph holds a {node.op}, which torch.export removes")
        return Block(tuple(inputs), tuple(nodes), tuple(self._value(v, module) for v in outputs))

    def is_check(self, node: Any) -> bool:
        """Whether this is a check that PyTorch makes while it runs, or a part of its results."""
        target = target_of(node.target)
        if target == "higher_order.with_effects" and str(node.args[1]) == _CHECK:
            self.tokens[node] = self.tokens.get(node.args[0], node.args[0])
        elif target == "_operator.getitem" and node.args[0] in self.tokens:
            self.tokens[node] = self.tokens[node.args[0]]
        return node in self.tokens

    def _node(self, index: int, node: Any, module: Any) -> Node:
        titles = [*argument_names(node.target), *[""] * len(node.args)]
        inputs = [(t, self._value(v, module)) for t, v in zip(titles, node.args)]
        inputs += [(name, self._value(v, module)) for name, v in node.kwargs.items()]
        target = target_of(node.target)
        if target in OF_MEMORY:
            inputs.append(("laid", _laid(node.args[0].meta.get("val"))))
        return Node(index, target, tuple(inputs), (Whole(node.name),), location_of(node))

    def _value(self, given: Any, module: Any) -> Any:
        torch = torch_package()
        if isinstance(given, torch.fx.Node):
            given = self.tokens.get(given, given)
            return self._attribute(given, module) if given.op == "get_attr" else Name(given.name)
        if isinstance(given, list | tuple):
            return [self._value(item, module) for item in given]
        if isinstance(given, torch.dtype):
            return Element(element_name(given))
        if given is None or isinstance(given, bool | int | float | complex | str):
            return given
        if isinstance(given, torch.device | torch.layout | torch.memory_format):
            return None
        if isinstance(given, type(torch.ops.aten.add.Tensor)):
            return Operator(target_of(given))
        raise GraphError(f"an argument is {type(given).__name__}, which is not supported")

    def _attribute(self, node: Any, module: Any) -> Any:
        """A graph, or a tensor that the graph holds."""
        held = module
        for part in node.target.split("."):
            held = getattr(held, part)
        if isinstance(held, torch_package().Tensor):
            self.held[node.name] = held
            return Name(node.name)
        return self.block(held)


def _laid(tensor: Any) -> Any:
    """The strides and the start in memory of a tensor that a graph was made with."""
    if tensor is None:
        return None
    strides, start = list(tensor.stride()), tensor.storage_offset()
    return [strides, start] if all(isinstance(n, int) for n in (*strides, start)) else None


def location_of(node: Any) -> Location | None:
    return user_line(node.meta.get("stack_trace") or "")


def kind_of(value: Any) -> Kind:
    """What an input is, from the value that a graph was made with."""
    torch = torch_package()
    if isinstance(value, torch.Tensor):
        sizes = tuple(n if isinstance(n, int) else _extent(n) for n in value.shape)
        return Kind("tensor", element_name(value.dtype), sizes)
    floats = isinstance(value, float | torch.SymFloat)
    return Kind("tensor", "float64" if floats else "int64", ())


def _extent(size: Any) -> str | Dim | None:
    """The name of a size, or a polynomial of names; None for one that follows in another way."""
    held = size.node.expr
    symbols = sorted(held.free_symbols, key=str)
    if held.is_Symbol or not symbols or not held.is_polynomial(*symbols):
        return str(held) if held.is_Symbol else None
    made: Any = 0
    for powers, coefficient in held.as_poly(*symbols).terms():
        if not coefficient.is_Integer:
            return None
        named = [symbol(str(name)) for name, power in zip(symbols, powers) for _ in range(power)]
        made = made + math.prod(named, start=int(coefficient))
    return made  # type: ignore[no-any-return]


def with_known_sizes(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """What inputs are, without polynomials of sizes that are no extent of an input themselves."""
    plain = {n for kind in kinds.values() for n in kind.shape or () if isinstance(n, str)}

    def known(extent: Any) -> Any:
        return None if isinstance(extent, Dim) and not extent.symbols() <= plain else extent

    return {
        name: replace(kind, shape=tuple(map(known, kind.shape or ())))
        for name, kind in kinds.items()
    }


# ------------------------------------------------------------------------------------ programs


def from_exported(
    program: Any, name: str, functional: bool = False, keys: Sequence[str] | None = None
) -> Program:
    """The records of a torch.export.ExportedProgram; weights are shared with it, and parameters are
    inputs of a `functional` one.  Results are called by these keys, or as in the graph."""
    block = (reader := Reader()).block(program.graph_module)
    fixed: dict[str, Any] = {title: array_of(t) for title, t in reader.held.items()}
    kinds: dict[str, Kind] = {}
    titles: dict[str, str] = {}
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    stored = {**dict(program.state_dict), **dict(program.constants)}
    for spec in program.graph_signature.input_specs:
        form, given = spec.kind.name, spec.arg
        if form == "PARAMETER" and functional:
            kinds[given.name] = kind_of(stored[spec.target])
            titles[given.name] = spec.target
        elif form in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            fixed[given.name] = array_of(stored[spec.target])
            titles[given.name] = spec.target
        elif form == "TOKEN":
            fixed[given.name] = None
        elif form != "USER_INPUT":
            raise GraphError(f"input {given.name!r} is a {form.lower().replace('_', ' ')}")
        elif type(given).__name__ == "ConstantArgument":
            fixed[given.name] = given.value
        else:
            kinds[given.name] = kind_of(values[given.name])
    specs = program.graph_signature.output_specs
    wanted = [v for s, v in zip(specs, block.outputs) if s.kind.name in _RESULTS]
    plain = [v.name if isinstance(v, Name) else f"result_{k}" for k, v in enumerate(wanted)]
    names = plain if keys is None or len(keys) != len(wanted) else keys
    inner = Block(block.inputs, block.nodes, tuple(wanted))
    default = element_name(torch_package().get_default_dtype())
    ranges = _ranges(program)
    return Program(name, inner, kinds, fixed, _distinct(names), titles, ranges, default=default)


_RESULTS = ("USER_OUTPUT", "LOSS_OUTPUT")


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    made: list[str] = []
    for name in names:
        made.append(name + "_" * made.count(name))
    return tuple(made)


def _ranges(program: Any) -> Mapping[str, tuple[int | None, int | None]]:
    def bound(value: Any) -> int | None:
        number = int(value) if getattr(value, "is_Integer", False) else None
        return number

    constraints = program.range_constraints.items()
    return {str(name): (bound(held.lower), bound(held.upper)) for name, held in constraints}


class LiveModel(TorchModel):
    """A program whose results nest as those of the module that it was made of.

    weights  copies of the parameters of the module by their names there, for a functional one,
             which takes a dict of such as its first argument
    """

    def __init__(
        self,
        program: Program,
        config: Config | None,
        nest: Nesting,
        weights: Mapping[str, Array] | None = None,
    ) -> None:
        super().__init__(program, config)
        self.nesting = nest
        self.weights = weights

    def __reduce__(self) -> tuple[Any, ...]:
        """With its nesting, whose types PyTorch knows: it is needed where a copy is read, too."""
        return type(self), (*super().__reduce__()[1], self.nesting, self.weights)

    def __call__(self, *args: Any, **feeds: Any) -> Any:
        """Arguments nest as the module's do; keywords are its own, or names of the graph."""
        first: list[Any] = []
        if self.weights is not None:
            given, args = (args[0], args[1:]) if args else ({}, ())
            first = self._listed(given)
        values, named = self.nesting.feeds(args, feeds)
        found = super().__call__(*first, *values, **named)
        return self.nesting.results(list(found.values()))

    def _listed(self, weights: Any) -> list[Any]:
        """Weights in the order of the program's inputs. Raises FeedError for others."""
        known = self.weights or {}
        names = list(weights) if isinstance(weights, Mapping) else []
        if set(names) != set(known):
            raise FeedError(
                f"{self.name} takes a dict of weights first: {', '.join(known)[:200]}",
                hint="model.weights is the one of the module",
            )
        return [weights[name] for name in known]


@record(frozen=True)
class Argument:
    """An argument of a module.

    title  what the module calls it, if that is known
    tree   how its leaves nest, as PyTorch says it
    names  of its leaves in the graph; None for those that were fixed
    fixed  what leaves without a name were fixed to
    """

    title: str
    tree: Any
    names: tuple[str | None, ...]
    fixed: tuple[Any, ...]

    def feeds(self, value: Any) -> list[tuple[str, Any]]:
        """Its leaves that the program takes, with their names there. Raises FeedError for another
        nesting, and where a leaf was fixed to another value."""
        leaves = self.leaves(value)
        for name, leaf, held in zip(self.names, leaves, self.fixed):
            same = leaf is held or (type(leaf) is type(held) and leaf == held)
            if name is None and not same:
                raise FeedError(
                    f"{self.title or 'an argument'} was fixed to {held!r} by the export",
                    hint="export the module anew with the other value",
                )
        return [(name, leaf) for name, leaf in zip(self.names, leaves) if name is not None]

    def leaves(self, value: Any) -> list[Any]:
        """Its leaves, dicts in the order of the export. Raises FeedError for another nesting."""
        if self.tree.is_leaf():
            return [value]
        try:
            return self.tree.flatten_up_to(value)  # type: ignore[no-any-return]
        except (ValueError, KeyError, TypeError) as error:
            what = self.title or "an argument"
            raise FeedError(f"{what} nests otherwise than that of the export: {error}") from None


@record(frozen=True)
class Nesting:
    """How the arguments and results of a module nest.

    arguments  those in order, keywords those that have to be named
    tree       how results nest, as PyTorch says it
    """

    arguments: tuple[Argument, ...]
    keywords: tuple[Argument, ...]
    tree: Any

    def feeds(
        self, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The leaves of the arguments that the program takes, in order and by name."""
        if len(args) > len(self.arguments):
            raise FeedError(f"the module takes {len(self.arguments)} values, got {len(args)}")
        first = [
            leaf
            for argument, value in zip(self.arguments, args)
            for _, leaf in argument.feeds(value)
        ]
        rest = dict(named)
        made: dict[str, Any] = {}
        for argument in (*self.arguments[len(args) :], *self.keywords):
            if argument.title in rest:
                made |= argument.feeds(rest.pop(argument.title))
        return first, {**made, **rest}

    def results(self, leaves: list[Any]) -> Any:
        """Results put together."""
        from torch.utils import _pytree as pytree

        return pytree.tree_unflatten(leaves, self.tree)

    def result_names(self) -> list[str] | None:
        """The keys that lead to each result, of a module that returns a dict or a dataclass."""
        from torch.utils import _pytree as pytree

        whole = self.results([0] * self.tree.num_leaves)
        paths = [path for path, _ in pytree.tree_flatten_with_path(whole)[0]]
        if not all(path and not isinstance(path[0], pytree.SequenceKey) for path in paths):
            return None
        return [".".join(map(_title, path)) for path in paths]


def _title(entry: Any) -> str:
    """A step into a nesting: a key, the name of a field, or a position."""
    return str(next(getattr(entry, n) for n in ("key", "name", "idx") if hasattr(entry, n)))


@refusing
def from_torch(
    module: Any,
    *examples: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
    functional: bool = False,
    name: str = "",
    **options: Any,
) -> LiveModel:
    """A module of PyTorch, or a function, as a callable for arrays, exported by torch.export on
    example arguments; `kwargs` are those that have keywords.

    Its arguments and results nest as the module's do.  `dynamic_shapes` says which sizes may
    change, and `strict` how the module is traced, as for torch.export.export; the other options are
    those of gc.compile.  A module is exported as it is: call its eval() first.  One that drops
    elements drops the same ones in every call, which a GraphHint says.

    A `functional` model takes a dict of the module's parameters as its first argument, so that it
    can learn: gc.grad(loss)(model.weights, x).  `model.weights` are copies: steps that donate them
    leave the module as it is.  Else they are fixed.

    Raises GraphError without PyTorch, for what torch.export refuses, and one that lists every
    operator that cannot be imported.
    """
    torch = torch_package()
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        program = _exported(module, examples, kwargs, dynamic_shapes, strict)
    warn_of_dropout(program, location_of)
    program = simplified(program)
    title = name or getattr(module, "__name__", type(module).__name__)
    weights = None
    if functional:
        specs = program.graph_signature.input_specs
        names = [spec.target for spec in specs if spec.kind.name == "PARAMETER"]
        weights = {name: array_of(program.state_dict[name]).copy() for name in names}
    nest = _nesting(program, _parameter_names(module))
    made = from_exported(program, title, functional, nest.result_names())
    return LiveModel(made, Config.create(**options), nest, weights)


def _exported(module: Any, examples: Any, kwargs: Any, dynamic_shapes: Any, strict: bool) -> Any:
    """What torch.export makes of a module, or of a function. Raises GraphError."""
    torch = torch_package()
    held = module if isinstance(module, torch.nn.Module) else _as_module(module)
    options = {"dynamic_shapes": dynamic_shapes, "strict": strict}
    try:
        return torch.export.export(held, examples, dict(kwargs or {}), **options)
    except Exception as error:  # whatever the module's own code raises
        title = getattr(module, "__name__", type(module).__name__)
        raise export_refused(error, held, title, examples, kwargs or {}) from error


def _as_module(function: Any) -> Any:
    """A module that calls a function, which has its parameters, so that they keep their names."""
    torch = torch_package()
    if not callable(function):
        raise GraphError(f"a module of PyTorch or a function, not {type(function).__name__}")

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        forward = staticmethod(function)

    return Module()


def _nesting(program: Any, titles: Sequence[str]) -> Nesting:
    """How the arguments and results of an exported program nest."""
    from torch.utils import _pytree as pytree

    specs = program.graph_signature.input_specs
    users = [s.arg for s in specs if s.kind.name == "USER_INPUT"]
    tree = program.call_spec.in_spec
    args, kwargs = pytree.tree_unflatten(users, tree)

    def argument(title: str, value: Any) -> Argument:
        leaves = pytree.tree_leaves(value)
        fixed = [type(leaf).__name__ == "ConstantArgument" for leaf in leaves]
        names = tuple(None if f else leaf.name for f, leaf in zip(fixed, leaves))
        held = tuple(leaf.value if f else None for f, leaf in zip(fixed, leaves))
        return Argument(title, pytree.tree_structure(value), names, held)

    padded = [*titles, *[""] * len(args)]
    return Nesting(
        tuple(map(argument, padded, args)),
        tuple(argument(title, value) for title, value in kwargs.items()),
        program.call_spec.out_spec,
    )


def _parameter_names(module: Any) -> list[str]:
    """What a module, or a function, calls its arguments that may be given in order."""
    try:
        held = inspect.signature(getattr(module, "forward", module)).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in held if p.kind is p.POSITIONAL_OR_KEYWORD]
