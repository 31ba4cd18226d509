"""What the inputs of a model of another library are declared to be."""

from __future__ import annotations

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.formats.encoded_values import CARRIED, STRINGS
from graphc.frontend.trace.trace import identifier
from graphc.ir.types import I64, Dim, Dimension, DType, Type, dtype, symbol, tensor


@record(frozen=True)
class Kind:
    """What an input or result of a graph is declared to be.

    form    "tensor", "sequence", "optional" or "" where the file does not say
    element the NumPy dtype of its elements, the name of a narrower one, or "" where it does not say
    shape   ints, names of dimensions, polynomials of these and None; None where the rank is not
            declared
    """

    form: str = ""
    element: str = ""
    shape: tuple[int | str | Dim | None, ...] | None = None


def type_of(name: str, kind: Kind) -> Type | None:
    """The type of the array that carries an input; None for a sequence or optional, and where no
    rank is declared.  Raises GraphError for an input without a declared type.
    """
    if kind.form in ("sequence", "optional"):
        return None
    if kind.form != "tensor" or not kind.element:
        raise GraphError(
            f"input {name!r} has no declared type", hint="infer shapes with onnx and save it again"
        )
    if kind.shape is None:
        return None
    element = element_of(kind)
    dims = [_dimension(name, k, extent) for k, extent in enumerate(kind.shape)]
    return tensor(element, dims)


def element_of(kind: Kind) -> DType:
    """The type of the elements of the array that carries a tensor."""
    return I64 if kind.element in STRINGS else dtype(CARRIED.get(kind.element, kind.element))


def _dimension(name: str, axis: int, extent: int | str | Dim | None) -> Dimension:
    if isinstance(extent, int | Dim):
        return extent
    named = extent is not None and any(c.isalnum() for c in extent)  # "?" names none
    return symbol(identifier(extent if extent and named else f"{name}_dim{axis}")[:64])
