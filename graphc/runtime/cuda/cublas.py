"""cuBLASLt through NVIDIA's nvmath-python, which is imported when a program has use for it.

A descriptor is a number to the bindings and memory of the host to the library.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import GraphError
from graphc.record import record
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.interface import DeviceError, Streamed
from graphc.runtime.cuda.places import alignment, place
from graphc.runtime.cuda.product import Matrix, Product
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.driver import Cuda

_INSTALL = "pip install 'graphc[cublas]'"
_NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED


@cache
def bindings() -> Any:
    """The functions of cuBLASLt. Raises GraphError where they are not installed."""
    try:
        from nvmath.bindings import cublasLt

        cublasLt.get_version()
    except (ImportError, RuntimeError, OSError) as error:  # of the library: RuntimeError
        reason = str(error).strip().split("\n")[0]
        raise GraphError("cuBLASLt cannot be used", details=(reason,), hint=_INSTALL) from None
    return cublasLt


@record(frozen=True, eq=False)
class Plan:
    """A product and one way to make it; `keep` is what owns the algorithm's memory."""

    product: Product
    descriptors: _Descriptors
    algorithm: int
    workspace: int
    keep: object


class CublasLt:
    """The library on one GPU. Raises GraphError where it is not installed, and DeviceError."""

    def __init__(self, driver: Cuda) -> None:
        self.driver = driver
        self.functions = bindings()
        self.version = str(self.functions.get_version())
        driver.enter()
        self.handle = self.do("create")

    def do(self, function: str, *arguments: Any, row: int = -1) -> Any:
        """Call a function of the library. Raises DeviceError, about a row of a table."""
        try:
            return getattr(self.functions, function)(*arguments)
        except self.functions.cuBLASLtError as error:
            name = self.functions.get_status_name(error.status)
            raise DeviceError(
                f"cuBLASLt on {self.driver.name} refuses {function}: {name}", row=row
            ) from None

    def plans(self, product: Product) -> Sequence[Plan]:
        """The ways to make a product that the library thinks best; none for one it cannot make."""
        lt = self.functions
        made = _Descriptors(self, product, alignment(product.bias, product.result))
        preference = self._preference(product)
        results, count = lt.MatmulHeuristicResult(tuned.algorithms), np.zeros(1, np.int32)
        a, b, c, d = made.in_order
        try:
            lt.matmul_algo_get_heuristic(
                self.handle,
                made.operation,
                a,
                b,
                c,
                d,
                preference,
                tuned.algorithms,
                results.ptr,
                address_of(count),
            )
        except lt.cuBLASLtError as error:
            if error.status != _NOT_SUPPORTED:
                raise DeviceError(
                    f"cuBLASLt on {self.driver.name} knows no way to make {product}: "
                    f"{lt.get_status_name(error.status)}"
                ) from None
            return ()
        finally:
            self.do("matmul_preference_destroy", preference)
        size = lt.matmul_heuristic_result_dtype.itemsize  # the algorithm comes first
        return tuple(
            Plan(product, made, results.ptr + k * size, int(results.workspace_size[k]), results)
            for k in range(int(count[0]))
            if not results.state[k]
        )

    def _preference(self, product: Product) -> Any:
        lt = self.functions
        made, kinds = self.do("matmul_preference_create"), lt.MatmulPreferenceAttribute
        addend = product.addend or product.target
        aligned = {
            kinds.MIN_ALIGNMENT_A_BYTES: alignment(product.left, product.element),
            kinds.MIN_ALIGNMENT_B_BYTES: alignment(product.right, product.element),
            kinds.MIN_ALIGNMENT_C_BYTES: alignment(addend, product.result),
            kinds.MIN_ALIGNMENT_D_BYTES: alignment(product.target, product.result),
        }
        for kind, value in {kinds.MAX_WORKSPACE_BYTES: tuned.workspace, **aligned}.items():
            self.set("matmul_preference", made, kind, value)
        return made

    def set(self, what: str, descriptor: Any, kind: Any, value: int) -> None:
        """Set an attribute of a descriptor."""
        dtype = getattr(self.functions, f"get_{what}_attribute_dtype")(kind)
        memory = np.array([value], dtype)
        self.do(f"{what}_set_attribute", descriptor, kind, address_of(memory), memory.nbytes)

    def prepare(self, plan: Plan, addresses: Sequence[int], workspace: int, row: int) -> Streamed:
        """What makes a product of operands at these addresses, for a row of a table."""
        product, made = plan.product, plan.descriptors
        if product.bias is not None:
            bias = place(product.bias, product.result, addresses)
            made = _Descriptors(self, product, bias)
        kind = np.float64 if product.element == "f64" else np.float32
        factors = np.array([product.scale, product.addend is not None], kind)
        scale, beta = address_of(factors), address_of(factors) + factors.itemsize
        where = {
            name: place(matrix, element, addresses)
            for name, (matrix, element, *_) in product.matrices.items()
        }
        a, b, c, d = made.in_order
        c_place = where.get("addend", where["target"])
        words = (
            self.handle,
            made.operation,
            scale,
            where["left"],
            a,
            where["right"],
            b,
            beta,
            c_place,
            c,
            where["target"],
            d,
            plan.algorithm,
            workspace,
            plan.workspace,
        )
        return partial(self._multiply, words, (plan, made, factors), row)

    def _multiply(self, words: tuple[int, ...], keep: object, row: int, stream: int) -> None:
        """`keep` owns the memory that the words point to."""
        self.do("matmul", *words, int(self.driver.streams[stream]), row=row)


class _Descriptors:
    """The descriptors of a product whose bias lies at an address; destroyed with this object."""

    def __init__(self, library: CublasLt, product: Product, bias: int) -> None:
        from nvmath import CudaDataType as Kinds
        from nvmath.bindings.cublas import ComputeType

        self.library, lt = library, library.functions
        self.kinds = {
            "f32": Kinds.CUDA_R_32F,
            "f64": Kinds.CUDA_R_64F,
            "f16": Kinds.CUDA_R_16F,
            "bf16": Kinds.CUDA_R_16BF,
        }
        double = product.element == "f64"
        # Sums in f32 proper: not by TF32, and not put together from shorter floats.
        compute = ComputeType.COMPUTE_64F if double else ComputeType.COMPUTE_32F
        scale = self.kinds["f64" if double else "f32"]
        self.operation = self._owned("matmul_desc", compute, scale)
        attributes = lt.MatmulDescAttribute
        name = f"{product.activation}_bias" if product.bias is not None else product.activation
        values = {
            attributes.TRANSA: product.left.transposed,
            attributes.TRANSB: product.right.transposed,
            attributes.EPILOGUE: lt.Epilogue[name.strip("_").upper() or "DEFAULT"],
        }
        if product.bias is not None:
            values[attributes.BIAS_POINTER] = bias
        for kind, value in values.items():
            library.set("matmul_desc", self.operation, kind, int(value))
        layouts = {name: self._layout(product, *shape) for name, shape in product.matrices.items()}
        layouts.setdefault("addend", layouts["target"])  # times zero
        self.in_order = [layouts[name] for name in ("left", "right", "addend", "target")]

    def _layout(
        self, product: Product, matrix: Matrix, element: str, rows: int, columns: int
    ) -> Any:
        attributes = self.library.functions.MatrixLayoutAttribute
        made = self._owned("matrix_layout", self.kinds[element], rows, columns, matrix.lead)
        if product.batch > 1:
            self.library.set("matrix_layout", made, attributes.BATCH_COUNT, product.batch)
            self.library.set("matrix_layout", made, attributes.STRIDED_BATCH_OFFSET, matrix.step)
        return made

    def _owned(self, what: str, *arguments: Any) -> Any:
        made = self.library.do(f"{what}_create", *arguments)
        destroy: Callable[[Any], None] = getattr(self.library.functions, f"{what}_destroy")
        weakref.finalize(self, destroy, made).atexit = False
        return made
