"""The machine's own speed at this moment: an FMA loop and a copy loop, written in LLVM IR.

Rates on a shared machine change with the hour, so a figure is only worth its ratio to these two,
timed in the same process just before. Twelve independent accumulators hide the FMA latency; the
copy runs over more memory than any cache holds.
"""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import llvmlite.binding as llvm
import numpy as np

CHAINS = 12
LOOP = """
define void @{name}(i64 %n, ptr %a, ptr %b) {{
entry:
  %x = load {vector}, ptr %a, align 4
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{phis}
{body}
  %next = add i64 %i, {step}
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{after}
  ret void
}}
"""


def fma_loop(vector: str, width: int) -> str:
    call = f"call {vector} @llvm.fma.v{width}f32"
    chains = range(CHAINS)
    return f"declare {vector} @llvm.fma.v{width}f32({vector}, {vector}, {vector})\n" + LOOP.format(
        name="fma_loop",
        vector=vector,
        step=1,
        phis="\n".join(f"  %p{k} = phi {vector} [%x, %entry], [%q{k}, %loop]" for k in chains),
        body="\n".join(
            f"  %q{k} = {call}({vector} %p{k}, {vector} %x, {vector} %x)" for k in chains
        ),
        after="\n".join(f"  store volatile {vector} %q{k}, ptr %b, align 4" for k in chains),
    )


def copy_loop(vector: str, width: int) -> str:
    body = "\n".join(
        f"  %s{k} = getelementptr float, ptr %a, i64 %o{k}\n"
        f"  %d{k} = getelementptr float, ptr %b, i64 %o{k}\n"
        f"  %v{k} = load {vector}, ptr %s{k}, align 4\n"
        f"  store {vector} %v{k}, ptr %d{k}, align 4"
        for k in range(4)
    )
    offsets = "\n".join(f"  %o{k} = add i64 %i, {k * width}" for k in range(4))
    return LOOP.format(
        name="copy_loop", vector=vector, step=4 * width, phis=offsets, body=body, after=""
    )


@cache
def loops() -> dict[str, object]:
    """Compile both loops for this processor; the values are ctypes functions that drop the GIL."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    width = 16 if features.get("avx512f") else 8 if features.get("avx") else 4
    vector = f"<{width} x float>"
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=3
    )
    jit = llvm.create_lljit_compiler(machine, use_jit_link=True)
    builder = llvm.JITLibraryBuilder().add_ir(fma_loop(vector, width) + copy_loop(vector, width))
    library = builder.export_symbol("fma_loop").export_symbol("copy_loop").link(jit, "roofline")
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    names = ("fma_loop", "copy_loop")
    return {"keep": (jit, library), "width": width} | {n: signature(library[n]) for n in names}


def rate(function: object, work: float, calls: list[tuple[int, int, int]]) -> float:
    """Units of work per second over all threads, the best of five."""
    best = 0.0
    with ThreadPoolExecutor(len(calls)) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(lambda arguments: function(*arguments), calls))
            best = max(best, work / (time.perf_counter() - start))
    return best


def measure(threads: int) -> dict[str, float]:
    """GFLOP/s of the FMA loop and GB/s (read plus written) of the copy loop."""
    jit = loops()
    steps, elements = 400_000, 16 * 1024 * 1024
    source, target = np.ones(elements, np.float32), np.zeros(elements, np.float32)
    small = [np.full(16, 0.5, np.float32) for _ in range(threads)]
    flops = 2.0 * CHAINS * jit["width"] * steps * threads
    fma = rate(jit["fma_loop"], flops, [(steps, a.ctypes.data, a.ctypes.data) for a in small])
    part = elements // threads
    offsets = [4 * part * k for k in range(threads)]
    calls = [(part, source.ctypes.data + o, target.ctypes.data + o) for o in offsets]
    return {"gflops": fma / 1e9, "gbytes": rate(jit["copy_loop"], 8.0 * elements, calls) / 1e9}


if __name__ == "__main__":
    for threads in (1, 2):
        print(threads, measure(threads))
