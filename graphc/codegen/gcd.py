"""gcd as LLVM IR: Euclid's algorithm on the magnitudes of 64-bit integers."""

from __future__ import annotations

from functools import cache

from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import I32, Module, Number, Pointer, Value, Writer, native


@cache
def gcd_text(machine: Target, is_signed: bool) -> str:
    """The kernel of elements lo..hi. The magnitude of the least integer is one without sign, which
    becomes that integer again."""

    def magnitude(given: Value) -> Value:
        return (given < 0).choose(given * -1, given) if is_signed else given

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        x, y, out = (bufs.pointer(k) for k in range(3))
        with f.loop(lo, hi) as i:
            a, b = f.local(magnitude(x[i])), f.local(magnitude(y[i]))
            with f.forever():
                divisor = b.value
                with f.when(divisor == 0):
                    f.leave()
                rest = a % divisor
                a.set(divisor)
                b.set(rest)
            out[i] = a
        f.give(0)

    return Module(machine.triple).text([kernel])
