"""Where the matrices of a product lie in memory, from the addresses of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from graphc.runtime.cuda.gemm import ITEMSIZE, Gemm, Matrix
from graphc.runtime.cuda.interface import ALIGNMENT


def alignment(matrix: Matrix | None, element: str) -> int:
    """What the address of a matrix is a multiple of, where its operand lies as kernels like it."""
    return gcd(ALIGNMENT, matrix.offset * ITEMSIZE[element] if matrix is not None else 0)


def place(matrix: Matrix, element: str, addresses: Sequence[int]) -> int:
    """The address of a matrix, from those of the operands."""
    return addresses[matrix.operand] + matrix.offset * ITEMSIZE[element]


def fits(product: Gemm, addresses: Sequence[int]) -> bool:
    """Do operands at these addresses lie as a library needs them?

    That is: at multiples of what it was told, and the result apart from all that is read, or
    exactly where its addend lies.
    """
    spans = {}
    for name, (matrix, element, rows, columns) in product.matrices.items():
        start = place(matrix, element, addresses)
        if start % alignment(matrix, element):
            return False
        end = start + product.extent(matrix, rows, columns) * ITEMSIZE[element]
        spans[name] = start, end, matrix.lead, matrix.step
    mine = spans.pop("target")
    others = (span for name, span in spans.items() if name != "addend" or span != mine)
    return all(end <= mine[0] or mine[1] <= start for start, end, *_ in others)
