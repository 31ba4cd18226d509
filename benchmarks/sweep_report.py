"""The page of the sweep: every case, the worst first, beside what the machine could do."""

from __future__ import annotations

import math
import statistics
from typing import Any

from benchmarks import roofline
from benchmarks.report import duration
from benchmarks.sweep_cases import Swept

Results = list[dict[str, Any]]
WORKING_SETS = (262_144, 8_388_608, 134_217_728)  # bytes: one for each cache, and memory


def rates(threads: int) -> dict[str, Any]:
    """GFLOP/s of f32, and GB/s (read plus written) for working sets of several sizes."""
    import numpy as np

    copy = roofline.loops()["copy_loop"]

    def repeated(count: int, source: np.ndarray, target: np.ndarray) -> None:
        for _ in range(count):
            copy(source.size, source.ctypes.data, target.ctypes.data)

    sizes = []
    for total in WORKING_SETS:
        part, count = total // 8 // threads, max(1, (1 << 26) // total)
        calls = [
            (count, np.ones(part, np.float32), np.zeros(part, np.float32)) for _ in range(threads)
        ]
        sizes.append((total, roofline.rate(repeated, float(total * count), calls) / 1e9))
    return {"gflops": roofline.measure(threads)["gflops"], "gbytes": sizes}


def limit(case: Swept, answers: dict[str, Any], roof: dict[str, Any] | None) -> float | None:
    """Seconds below which the arithmetic or the bytes of a case cannot be done here."""
    size = next((a["bytes"] for a in answers.values() if "bytes" in a), None)
    if roof is None or size is None:
        return None
    size = case.bytes or size
    # A cache is no slower than the next one: where calls of the loop hide that, they are too short.
    rate = max(r for total, r in roof["gbytes"] if size <= 2 * total or total == WORKING_SETS[-1])
    halves = 2 if case.name.endswith(("f64", "c128")) else 1
    return max(case.flops * halves / roof["gflops"], size / rate) / 1e9


def best_peer(result: dict[str, Any]) -> tuple[str, float] | None:
    """The fastest peer, and its time over graphc's."""
    ratios = {
        name: answer["ratio"]
        for name, answer in result["peers"].items()
        if name != "graphc" and "ratio" in answer
    }
    return min(ratios.items(), key=lambda item: item[1]) if ratios else None


def mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else float("nan")


def summary(results: Results) -> list[str]:
    """A few lines: how many cases, how many at or above the best peer, the means, what failed."""
    lines = []
    for threads in sorted({r["threads"] for r in results}):
        mine = [r for r in results if r["threads"] == threads]
        ratios = [best[1] for r in mine if (best := best_peer(r))]
        if not ratios:
            continue
        ahead, behind = sum(r >= 0.98 for r in ratios), sum(r < 0.8 for r in ratios)
        lines.append(
            f"{threads} thread(s): {len(ratios)} cases, {ahead / len(ratios):.0%} at or above the"
            f" best peer (0.98 counts), {behind} below 0.8, geometric mean {mean(ratios):.2f}x of"
            " the best peer's time"
        )
        for name in sorted({p for r in mine for p in r["peers"]} - {"graphc"}):
            each = [r["peers"][name]["ratio"] for r in mine if "ratio" in r["peers"].get(name, {})]
            if each:
                lines.append(f"  {name}: {mean(each):.2f}x over {len(each)} cases")
    return lines


def page(results: Results, machine: dict[str, Any], absent: list[str]) -> str:
    """Markdown: what was measured how, the summary, and a table for each number of threads."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    parts = [
        "# The sweep",
        f"{machine['date']}, {machine['processors']} x {machine['processor']}; {versions}.",
        "Multiples: the peer's time over graphc's, the median over rounds in turn; above 1 graphc"
        " is faster. One thread: seconds that the process computes; several: of the wall. The share"
        " of the limit is the time that the arithmetic or the bytes take at the rates measured here"
        " (a copy within the cache that holds them), over graphc's.",
        "\n".join(f"- {line.strip()}" for line in [*summary(results), *absent]),
    ]
    for threads in sorted({r["threads"] for r in results}):
        parts += [f"## {threads} thread(s)", table([r for r in results if r["threads"] == threads])]
    parts += ["## Failed", "\n".join(failures(results)) or "Nothing."]
    return "\n\n".join(parts) + "\n"


def table(results: Results) -> str:
    rated = [(best, r) for r in results if (best := best_peer(r))]
    rated.sort(key=lambda item: item[0][1])
    lines = ["| case | graphc | of the limit | best peer | all peers |", "|---|---|---|---|---|"]
    for (name, ratio), result in rated:
        own = result["peers"]["graphc"]["median"]
        share = f"{result['limit'] / own:.0%}" if result["limit"] else ""
        others = ", ".join(
            f"{peer} {answer['ratio']:.2f}"
            for peer, answer in result["peers"].items()
            if peer not in ("graphc", name) and "ratio" in answer
        )
        cells = (result["case"], duration(own), share, f"**{ratio:.2f}** {name}", others)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def failures(results: Results) -> list[str]:
    """One line for each participant that could not run a case, or found something else."""
    lines = {
        f"- {r['case']}, {name}: {answer['failed']}"
        for r in results
        for name, answer in r["peers"].items()
        if "failed" in answer
    }
    return sorted(lines)
