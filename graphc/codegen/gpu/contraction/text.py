"""Small parts of the source of contraction kernels: lines, sums of terms, offsets."""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.gpu.contraction.tile_choice import Cut, Term
from graphc.codegen.python.helpers import storage
from graphc.ir.types import BF16, F16, DType


class Lines:
    """Source text in the making."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = ""

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def block(self, head: str, body: Callable[[], None]) -> None:
        self.line(head)
        self.indent += "    "
        body()
        self.indent = self.indent[:-4]


def offset_function(name: str, terms: tuple[Term, ...]) -> str:
    """A function from a number to the offset of what it counts: digits times strides."""
    word = "np.uint32" if total_of(terms) < 1 << 32 else "np.uint64"
    lines = ["", "@helper", f"def {name}(x):", f"    x = {word}(x)"]
    parts, rest = [], "x"
    for number, (extent, stride) in enumerate(reversed(terms)):
        last = number == len(terms) - 1
        digit = rest if last else f"{rest} % {word}({extent})"
        if stride:
            parts.append(f"np.int64({digit})" + (f" * {stride}" if stride != 1 else ""))
        if not last:
            lines.append(f"    x{number} = {word}({rest} // {word}({extent}))")
            rest = f"x{number}"
    return "\n".join([*lines, f"    return {' + '.join(parts) or 'np.int64(0)'}", ""])


def total_of(terms: tuple[Term, ...]) -> int:
    product = 1
    for extent, _ in terms:
        product *= extent
    return product


class Addresses:
    """Writes offsets, as expressions where they are simple and as functions where not."""

    def __init__(self) -> None:
        self.functions: list[str] = []

    def of(self, name: str, terms: tuple[Term, ...], number: str) -> str:
        """The offset of `number`, which is a name or a bracketed expression."""
        if not terms or not any(stride for _, stride in terms):
            return ""
        if len(terms) == 1:
            return number if terms[0][1] == 1 else f"{number} * {terms[0][1]}"
        made = offset_function(name, terms)
        if made not in self.functions:
            self.functions.append(made)
        return f"{name}({number[1:-1] if number.startswith('(') else number})"


def times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"


def bare(text: str) -> str:
    """Without the brackets around the whole."""
    return text[1:-1] if text.startswith("(") and ")" not in text[:-1] else text


def plus(*parts: str | int) -> str:
    """A sum of what is not zero."""
    return " + ".join(str(p) for p in parts if p not in ("", 0, "0")) or "0"


def widened(element: DType, accumulator: DType, value: str) -> str:
    """A vector of stored elements in the type of sums."""
    if element in (F16, BF16):
        return f"widen_{element}({value})"
    return value if element is accumulator else f"widen({value}, {storage(accumulator)}(0))"


def deliver(cut: Cut, names: list[str], value: str) -> str:
    """A finished sum to the rest of the region, or a part of one to the workspace."""
    if cut.splits == 1:
        return f"finish({', '.join(['batch', 'i', 'j', value, *names, 'status', 'row'])})"
    where = f"((split * {cut.batch} + batch) * {cut.m} + i) * {cut.n} + j"
    return f"{names[-1]}[{where}] = {value}"
