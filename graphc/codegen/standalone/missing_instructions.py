"""What WebAssembly has no instructions for, and no C library is there to do: fused multiply-adds
and products of 128 bits.

Fused multiply-adds: LLVM would call `fma` for each lane.  What kernels ask of it is that the
product is not rounded: polynomials gain a little by that, exact products and remainders need it.

f32: product and sum in f64, where the product is exact; the sum is rounded twice, to the same
number but for one in 2^28.  f64: the product as two numbers (Dekker 1971), then a sum of three
whose errors are kept (Knuth's two-sum): exact where the result is, else the last bit may differ.
Where a factor of Dekker's overflows, beyond 2^996, the product is rounded.

Products of two numbers of 64 bits: LLVM calls `__multi3` of its own library.
"""

from __future__ import annotations

import re

from graphc.codegen.llvm.writer import Number, Pointer, Writer, native

WIDE_PRODUCT = "__multi3"  # the name that LLVM calls it by
LOWER = (1 << 32) - 1  # half of a word

_DECLARED = re.compile(r"^declare [^\n]*@llvm\.fma\.[^\n]*\n", re.MULTILINE)
_FUSED = re.compile(r"@llvm\.fma\.((?:v(\d+))?f(32|64))\(")
_SPLITTER = "134217729.0"  # 2^27 + 1


@native(is_public=True, symbol=WIDE_PRODUCT)
def wide_product(
    f: Writer, to: Pointer, a: Number, a_high: Number, b: Number, b_high: Number
) -> None:
    """The lower 128 bits of a product, by halves of the lower words of its factors."""
    a0, a1, b0, b1 = a & LOWER, a >> 32, b & LOWER, b >> 32
    middle = a1 * b0 + (a0 * b0 >> 32)
    second = a0 * b1 + (middle & LOWER)
    carried = a1 * b1 + (middle >> 32) + (second >> 32)
    to[0] = a * b
    to[1] = carried + a_high * b + a * b_high
    f.give()


def without_fused(text: str) -> str:
    """The text of a module with functions of its own in the place of `llvm.fma`."""
    text = _DECLARED.sub("", text)
    found = {match.group(1): match for match in _FUSED.finditer(text)}
    if not found:
        return text
    written = [_function(name, int(m[2] or 0), int(m[3])) for name, m in sorted(found.items())]
    return _FUSED.sub(r"@graphc.fma.\1(", text) + "\n" + "\n".join(written)


def _function(name: str, lanes: int, bits: int) -> str:
    def kind(element: str) -> str:
        return f"<{lanes} x {element}>" if lanes else element

    def constant(value: str) -> str:
        return f"splat (double {value})" if lanes else value

    single, double = kind("float"), kind("double")
    given = single if bits == 32 else double
    head = f"define internal {given} @graphc.fma.{name}({given} %x, {given} %y, {given} %z)"
    if bits == 32:
        body = [
            *(f"%{v}w = fpext {single} %{v} to {double}" for v in "xyz"),
            f"%p = fmul {double} %xw, %yw",
            f"%s = fadd {double} %p, %zw",
            f"%r = fptrunc {double} %s to {single}",
        ]
    else:
        body = _in_doubles(double, constant(_SPLITTER), kind("i1"))
    lines = "\n".join(f"  {line}" for line in body)
    return f"{head} alwaysinline nounwind memory(none) {{\n{lines}\n  ret {given} %r\n}}\n"


def _in_doubles(double: str, splitter: str, flag: str) -> list[str]:
    lines: list[str] = []

    def do(name: str, op: str, first: str, second: str) -> str:
        lines.append(f"%{name} = f{op} {double} {first}, {second}")
        return f"%{name}"

    halves = {}
    for v in "xy":  # the upper 26 bits, and the rest
        c = do(f"{v}c", "mul", f"%{v}", splitter)
        above = do(f"{v}a", "sub", c, f"%{v}")
        high = do(f"{v}h", "sub", c, above)
        halves[v] = high, do(f"{v}l", "sub", f"%{v}", high)
    (xh, xl), (yh, yl) = halves["x"], halves["y"]
    p = do("p", "mul", "%x", "%y")
    e = do("e0", "sub", do("hh", "mul", xh, yh), p)
    e = do("e1", "add", e, do("hl", "mul", xh, yl))
    e = do("e2", "add", e, do("lh", "mul", xl, yh))
    e = do("e3", "add", e, do("ll", "mul", xl, yl))
    s = do("s", "add", p, "%z")
    b = do("b", "sub", s, p)
    t = do("t", "add", do("t0", "sub", p, do("t1", "sub", s, b)), do("t2", "sub", "%z", b))
    exact = do("x0", "add", s, do("x1", "add", t, e))
    lines.append(f"%known = fcmp ord {double} {exact}, {exact}")
    lines.append(f"%r = select {flag} %known, {double} {exact}, {double} {s}")
    return lines
