"""cuBLASLt, called through ctypes; the library is loaded when a program has use for it.

It is found where NVIDIA's packages look for theirs: wheels, conda, the toolkit, the system.  What
is used of its interface has been the same since CUDA 11.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.gemm import Gemm, Matrix
from graphc.runtime.cuda.interface import DeviceError, Streamed
from graphc.runtime.cuda.matrix_addresses import alignment, place
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.driver import Cuda

INSTALL = "pip install 'graphc[cublas]'"
_NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED
# cudaDataType, cublasComputeType_t, cublasLtEpilogue_t
_KINDS = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
_COMPUTE_F32, _COMPUTE_F64 = 68, 70
_EPILOGUES = {"": 1, "relu": 2, "bias": 4, "relu bias": 6, "gelu": 32, "gelu bias": 36}
# Attributes of descriptors: a number and a type.
_Attribute = tuple[int, Any]
_TRANSPOSE_LEFT, _TRANSPOSE_RIGHT = (3, c_int32), (4, c_int32)
_EPILOGUE, _BIAS = (7, c_uint32), (8, c_uint64)
_BATCH_COUNT, _BATCH_STEP = (5, c_int32), (6, c_int64)
_WORKSPACE = (1, c_uint64)
_ALIGNMENTS = [(number, c_uint32) for number in (5, 6, 7, 8)]  # of A, B, C and D


class _Way(ctypes.Structure):
    """A way to make a product; the algorithm comes first."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_SET = (c_void_p, c_int, c_void_p, c_size_t)
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "Create": (c_void_p,),
    "MatmulDescCreate": (c_void_p, c_int, c_int),
    "MatmulDescDestroy": (c_void_p,),
    "MatmulDescSetAttribute": _SET,
    "MatrixLayoutCreate": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    "MatrixLayoutDestroy": (c_void_p,),
    "MatrixLayoutSetAttribute": _SET,
    "MatmulPreferenceCreate": (c_void_p,),
    "MatmulPreferenceDestroy": (c_void_p,),
    "MatmulPreferenceSetAttribute": _SET,
    "MatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, c_void_p, c_void_p),
    "Matmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}


@cache
def loaded() -> Any:
    """The library. Raises GraphError where there is none."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = ctypes.CDLL(load_nvidia_dynamic_lib("cublasLt").abs_path)
        for name, types in _PROTOTYPES.items():
            getattr(found, f"cublasLt{name}").argtypes = types
        found.cublasLtGetVersion.restype = c_size_t
        found.cublasLtGetStatusName.restype = ctypes.c_char_p
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise GraphError("cuBLASLt cannot be used", details=(reason,), hint=INSTALL) from None
    return found


def described() -> str:
    """What makes products of matrices in this process, or why the library does not."""
    try:
        version = loaded().cublasLtGetVersion()
    except GraphError as error:
        reason = "; ".join((error.message, *error.details, str(error.hint)))
        return f"products of matrices: kernels alone; {reason}"
    number = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    return f"products of matrices: kernels, and cuBLASLt {number}"


@record(frozen=True, eq=False)
class Plan:
    """A product and one way to make it, whose algorithm lies in `way`."""

    product: Gemm
    descriptors: _Descriptors
    way: _Way
    workspace: int


class CublasLt:
    """The library on one GPU. Raises GraphError where there is none, and DeviceError."""

    def __init__(self, driver: Cuda) -> None:
        self.driver = driver
        self.library = loaded()
        self.version = str(self.library.cublasLtGetVersion())
        driver.enter()
        self.handle = self.made("Create")

    def do(self, function: str, *arguments: Any, row: int = -1) -> None:
        """Call a function of the library. Raises DeviceError, about a row of a table."""
        status = getattr(self.library, f"cublasLt{function}")(*arguments)
        if status:
            raise DeviceError(
                f"cuBLASLt on {self.driver.name} refuses {function}: {self._name(status)}", row=row
            )

    def made(self, function: str, *arguments: Any) -> int:
        """What a function of the library makes."""
        found = c_void_p()
        self.do(function, byref(found), *arguments)
        return found.value or 0

    def set(self, what: str, descriptor: int, attribute: _Attribute, value: int) -> None:
        """Set an attribute of a descriptor."""
        number, kind = attribute
        memory = kind(value)
        self.do(f"{what}SetAttribute", descriptor, number, byref(memory), ctypes.sizeof(memory))

    def _name(self, status: int) -> str:
        found: bytes = self.library.cublasLtGetStatusName(status)
        return found.decode()

    def plans(self, product: Gemm) -> Sequence[Plan]:
        """The ways to make a product that the library thinks best; none for one it cannot make."""
        made = _Descriptors(self, product, alignment(product.bias, product.result))
        ways, count = (_Way * tuned.algorithms)(), c_int()
        preference = self._preference(product)
        try:
            status = self.library.cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                made.operation,
                *made.in_order,
                preference,
                tuned.algorithms,
                ways,
                byref(count),
            )
        finally:
            self.do("MatmulPreferenceDestroy", preference)
        if status not in (0, _NOT_SUPPORTED):
            raise DeviceError(
                f"cuBLASLt on {self.driver.name} knows no way to make {product}: "
                f"{self._name(status)}"
            )
        found = ways[: count.value] if not status else ()
        return tuple(Plan(product, made, way, way.workspace) for way in found if not way.state)

    def _preference(self, product: Gemm) -> int:
        made, addend = self.made("MatmulPreferenceCreate"), product.addend or product.target
        matrices = (
            (product.left, product.element),
            (product.right, product.element),
            (addend, product.result),
            (product.target, product.result),
        )
        self.set("MatmulPreference", made, _WORKSPACE, tuned.workspace)
        for attribute, matrix in zip(_ALIGNMENTS, matrices, strict=True):
            self.set("MatmulPreference", made, attribute, alignment(*matrix))
        return made

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
            ctypes.addressof(plan.way),
            workspace,
            plan.workspace,
        )
        return partial(self._multiply, words, (plan, made, factors), row)

    def _multiply(self, words: tuple[int, ...], keep: object, row: int, stream: int) -> None:
        """`keep` owns the memory that the words point to."""
        self.do("Matmul", *words, int(self.driver.streams[stream]), row=row)


class _Descriptors:
    """The descriptors of a product whose bias lies at an address; destroyed with this object."""

    def __init__(self, library: CublasLt, product: Gemm, bias: int) -> None:
        self.library = library
        double = product.element == "f64"
        # Sums in f32 proper: not by TF32, and not put together from shorter floats.
        compute = _COMPUTE_F64 if double else _COMPUTE_F32
        self.operation = self._owned("MatmulDesc", compute, _KINDS["f64" if double else "f32"])
        epilogue = f"{product.activation} bias" if product.bias is not None else product.activation
        values = {
            _TRANSPOSE_LEFT: product.left.transposed,
            _TRANSPOSE_RIGHT: product.right.transposed,
            _EPILOGUE: _EPILOGUES[epilogue.strip()],
        }
        if product.bias is not None:
            values[_BIAS] = bias
        for attribute, value in values.items():
            library.set("MatmulDesc", self.operation, attribute, int(value))
        layouts = {name: self._layout(product, *shape) for name, shape in product.matrices.items()}
        layouts.setdefault("addend", layouts["target"])  # times zero
        self.in_order = [layouts[name] for name in ("left", "right", "addend", "target")]

    def _layout(self, product: Gemm, matrix: Matrix, element: str, rows: int, columns: int) -> int:
        made = self._owned("MatrixLayout", _KINDS[element], rows, columns, matrix.lead)
        if product.batch > 1:
            self.library.set("MatrixLayout", made, _BATCH_COUNT, product.batch)
            self.library.set("MatrixLayout", made, _BATCH_STEP, matrix.step)
        return made

    def _owned(self, what: str, *arguments: Any) -> int:
        made = self.library.made(f"{what}Create", *arguments)
        destroy = getattr(self.library.library, f"cublasLt{what}Destroy")
        weakref.finalize(self, destroy, made).atexit = False
        return made
