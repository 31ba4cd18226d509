"""Which contractions are plain products of matrices, that cuBLAS can make as well.

The region has to be one product with strides that BLAS knows, and after it, in this order, each at
most once: a factor, addends (a bias for each column; something of the shape of the result), relu or
the gelu with tanh; and casts to narrower floats.  In the graph matrices are row-major, in a
`Gemm` column-major: what is called A here is its right factor, B its left one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.codegen.gemm.form import Groups, Loop, normalise, step_of, total
from graphc.codegen.gpu.contraction.tile_choice import operand
from graphc.codegen.gpu.launch import Launch
from graphc.codegen.lowering.contraction import Form, form_of, result_axes
from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.operands import read_of
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Scalar
from graphc.runtime.cuda.gemm import KINDS, Gemm, Matrix

Side = tuple[int, int | None]  # extent and stride

SIZES = np.geomspace(1e-40, 1e38, 157)  # bounds and offsets show: 1e-6 added to a relu is none
PROBES = np.array([*np.linspace(-12, 12, 97), *SIZES, *-SIZES, np.inf, np.nan])
ACTIVATIONS = {  # each with how far values may be off
    "relu": (np.maximum(PROBES, 0), 0.0),
    # That with erf is 5e-4 away from it.
    "gelu": (
        PROBES / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (PROBES + 0.044715 * PROBES**3))),
        1e-5,
    ),
}
OF_ZERO = 1e-9  # of what values may be off, near zero
NARROW = 1  # columns that a run of the result has at least, else it is a batch of more of them


def product_of(region: Graph, config: Config, launches: Sequence[Launch]) -> Gemm | None:
    """What the launches of a region do, as a product; None where it is none or has to be made in
    a certain order."""
    if config.strict or config.check_finite or len(region.results) != 1:
        return None
    if any("products_tf32(" in launch.text for launch in launches):
        return None  # the library would multiply in full
    form = form_of(region)
    result = tensor_type(region.results[0])
    names = str(form.element), str(result.dtype)
    if names not in KINDS or result.dims != tensor_type(form.node).dims:
        return None
    groups = normalise(form.normal(), NARROW)
    factors = _factors(region, form, groups)
    epilogue = Epilogue(region, form, groups)
    if factors is None or not epilogue.known():
        return None
    m, n = total(groups.m), total(groups.n)
    last = launches[-1]
    made = Gemm(
        len(launches),
        *names,
        total(groups.batch),
        n,
        m,
        total(groups.k),
        *factors,
        epilogue.addend,
        epilogue.bias,
        epilogue.activation,
        epilogue.scale,
        tuple(count * dtype.itemsize for dtype, count in last.buffers),
    )
    try:
        made.check(made.sizes)
    except GraphError:
        return None
    return made


def _factors(region: Graph, form: Form, groups: Groups) -> tuple[Matrix, Matrix, Matrix] | None:
    """Left and right factor and the result; None where their strides are none of BLAS."""
    m, n, k = (total(group) for group in (groups.m, groups.n, groups.k))
    steps = [step_of(groups.batch, field) for field in "abc"]
    row, column = step_of(groups.m, "c"), step_of(groups.n, "c")
    if None in steps or row is None or column not in ((0, 1) if n == 1 else (1,)):
        return None
    found = []
    for name, outer, extent in (("b", groups.n, n), ("a", groups.m, m)):
        read = form.reads[operand(form, groups, name)[0]]
        place = region.params.index(read.source), read.offset
        sides = (extent, step_of(outer, name)), (k, step_of(groups.k, name))
        down, along = sides if name == "b" else sides[::-1]
        matrix = _matrix(place, down, along, steps["abc".index(name)] or 0)
        if matrix is None:
            return None
        found.append(matrix)
    target = Matrix(len(region.params), 0, row if m > 1 else n, steps[2] or 0)
    return found[0], found[1], target


def _matrix(place: tuple[int, int], down: Side, along: Side, step: int) -> Matrix | None:
    """A matrix of so many elements down and along, each with how far a step goes; as it is or as
    the transpose of what lies in memory."""
    for transposed in (False, True):
        (rows, stride), (columns, lead) = (along, down) if transposed else (down, along)
        lead = rows if columns == 1 else lead
        if lead is not None and lead >= rows and (rows == 1 or stride == 1):
            return Matrix(*place, lead, step, transposed)
    return None


class Epilogue:
    """What a region does with the sums; `known` tells whether that is all that a product can do."""

    def __init__(self, region: Graph, form: Form, groups: Groups) -> None:
        self.region, self.form, self.groups = region, form, groups
        self.result = tensor_type(region.results[0])
        self.addend: Matrix | None = None
        self.bias: Matrix | None = None
        self.activation = ""
        self.scale = 1.0

    def known(self) -> bool:
        users: dict[Node, list[Node]] = {}
        for node in self.region.nodes:
            for given in dict.fromkeys(node.inputs):
                users.setdefault(given, []).append(node)
        current = self.form.node
        while (following := users.get(current, [])) != []:
            if len(following) > 1 or not self._takes(following[0], current):
                self.activation = activation_of(self.region, current)
                return bool(self.activation)
            current = following[0]
        return current is self.region.results[0]

    def _takes(self, node: Node, current: Node) -> bool:
        """Whether a node is a cast, a factor or an addend; nothing is noted of any other."""
        others = [n for n in node.inputs if n is not current]
        if tensor_type(node).dims != self.result.dims or len(others) + 1 != len(node.inputs):
            return False
        name, first = node.op.name, node.inputs[0] is current
        if node.op.traits.casts:
            return narrows(node)
        if name in ("mul", "div"):
            return (name == "mul" or first) and self._scales(name, others[0])
        if name == "sub":
            free = not first and self.addend is None and self.bias is None
            taken = free and self._adds(others[0])
            self.scale *= -1 if taken else 1
            return taken
        return name == "add" and self._adds(others[0])

    def _scales(self, name: str, other: Node) -> bool:
        factor = number(other)
        if not factor or self.addend is not None or self.bias is not None:
            return False
        self.scale *= factor if name == "mul" else 1 / factor
        return True

    def _adds(self, other: Node) -> bool:
        """Whether something added is a bias or an addend, of which there may be one each."""
        read = read_of(other, self.region.params.__contains__)
        if read is None or tensor_type(read.source).dtype is not self.result.dtype:
            return False
        strides = self._strides(tensor_type(other).dims, read.strides)
        if strides is None:
            return False
        batch, m, n = strides
        place = self.region.params.index(read.source), read.offset
        if n != 1 and total(self.groups.n) > 1:
            return False
        if (batch, m) == (0, 0) and self.bias is None:
            self.bias = Matrix(*place, total(self.groups.n))
            return True
        if self.addend is None:
            many = total(self.groups.m) > 1
            self.addend = Matrix(*place, m if many else total(self.groups.n), batch)
            return True
        return False

    def _strides(self, dims: Sequence[int], strides: Sequence[int]) -> list[int] | None:
        """How far an operand of these dims and strides goes with the number of a matrix, its row
        and its column."""
        skipped = len(self.result.dims) - len(dims)
        by_axis = dict(enumerate(strides, skipped))
        by_axis = {axis: s if dims[axis - skipped] > 1 else 0 for axis, s in by_axis.items()}
        axes = result_axes(self.form)
        steps = {key: by_axis.get(axis, 0) * step for key, (axis, step) in axes.items()}
        found = [stride_of(g, steps) for g in (self.groups.batch, self.groups.m, self.groups.n)]
        return None if None in found else [stride for stride in found if stride is not None]


def stride_of(loops: Sequence[Loop], steps: Mapping[tuple[str, int], int]) -> int | None:
    """The stride of a group of loops in an operand that goes by `steps` along their dims; None
    where they are not one long dim there."""
    parts = [part for loop in loops for part in loop.parts]
    expected: int | None = None
    for group, position, extent in reversed(parts):
        stride = steps.get((group, position), 0)
        if expected is not None and stride != expected:
            return None
        expected = stride * extent
    return steps.get(parts[-1][:2], 0) if parts else 0


def activation_of(region: Graph, node: Node) -> str:
    """Which activation a region makes of a node, known by its values; "" for none that BLAS has."""
    values: dict[Node, Any] = {node: PROBES}
    for user in region.nodes:
        if not any(given in values for given in user.inputs):
            continue
        inputs = [values.get(given, number(given)) for given in user.inputs]
        if any(value is None for value in inputs):
            return ""
        if user.op.traits.casts and narrows(user):
            values[user] = inputs[0]
        elif is_real_function(user):
            with np.errstate(all="ignore"):
                values[user] = user.op.reference(*inputs, **user.attrs.values_dict)
        else:
            return ""
    found = values[region.results[0]]  # all that a region computes leads to its result
    for name, (wanted, near) in ACTIVATIONS.items():
        if np.allclose(found, wanted, rtol=near, atol=near * OF_ZERO, equal_nan=True):
            return name
    return ""


def is_real_function(node: Node) -> bool:
    """Does a node compute each element from the values of others, as a float or a truth value?"""
    of_values = isinstance(node.op.lower, Scalar) and node.op.name != "bitcast"
    return of_values and tensor_type(node).dtype.kind in "fb"


def narrows(cast: Node) -> bool:
    """Is a cast one to floats that are no wider?"""
    before, after = tensor_type(cast.inputs[0]).dtype, tensor_type(cast).dtype
    return after.kind == "f" and after.itemsize <= before.itemsize


def number(node: Node) -> float | None:
    """The value of a constant of one element."""
    kind: Any = node.type
    if not node.op.traits.stored or kind.size != 1 or kind.dtype.is_complex:
        return None
    return float(node.op.reference(**node.attrs.values_dict).reshape(()))
