"""The tables of a benchmark run: who is how many times slower than graphc, and first calls."""

from __future__ import annotations

import math
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.suite import CASES

NOISE = 0.25  # MiB: the kernel counts resident pages in batches
Results = list[dict[str, Any]]


def duration(seconds: float) -> str:
    """Three significant digits in the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        value = seconds * scale
        if value >= 1 or unit == "us":
            return f"{value:#.3g}".rstrip(".") + f" {unit}"
    raise AssertionError("unreachable: the last unit always returns")


def times(ratio: float) -> str:
    """`1.52x` in green where graphc is faster, in red where it is slower."""
    colour = "green" if ratio >= 1.02 else "red" if ratio <= 0.98 else "yellow"
    return f"[{colour}]{ratio:.2f}x[/]"


def roof_share(name: str, seconds: float, roof: dict[str, float]) -> float:
    """Shortest time the machine allows (arithmetic or memory) over the time taken."""
    case = CASES[name]
    arithmetic = case.flops / (roof["gflops"] * 1e9)
    memory = case.bytes / (roof["gbytes"] * 1e9)
    return max(arithmetic, memory) / seconds


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def steady_table(results: Results, peers: list[str], threads: int) -> Table:
    """Warm calls on so many threads: graphc's time, its share of the roof, peers as multiples."""
    plural = "s" if threads > 1 else ""
    table = Table(title=f"warm calls, {threads} thread{plural}", box=SIMPLE_HEAD)
    table.add_column("case")
    for heading in ("graphc", "of roof", *peers):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in CASES:
        found = {
            r["peer"]: r["report"]
            for r in results
            if (r["action"], r["case"], r["threads"]) == ("pair", name, threads)
        }
        if found:
            table.add_row(name, *graphc_cells(name, found), *(peer_cell(found, p) for p in peers))
    table.add_row("geometric mean", "", "", *(mean_cell(results, p, threads) for p in peers))
    return table


def graphc_cells(name: str, found: dict[str, Any]) -> tuple[str, str]:
    timed = [r for r in found.values() if "median" in r.get("graphc", {})]
    if not timed:
        return "failed", ""
    own = middle([r["graphc"]["median"] for r in timed])
    share = middle([roof_share(name, r["graphc"]["median"], r["roof"]) for r in timed])
    return duration(own), f"{share:.0%}"


def peer_cell(found: dict[str, Any], peer: str) -> str:
    """`time  multiple`, or the time alone where graphc has none."""
    report = found.get(peer, {})
    timing = report.get(peer, {})
    if "median" not in timing:
        return "failed" if "failed" in timing or "failed" in report else ""
    text = duration(timing["median"])
    return f"{text} {times(report['ratio'])}" if "ratio" in report else text


def mean_cell(results: Results, peer: str, threads: int) -> str:
    ratios = [
        r["report"]["ratio"]
        for r in results
        if (r["peer"], r["threads"]) == (peer, threads) and "ratio" in r["report"]
    ]
    return times(math.exp(sum(map(math.log, ratios)) / len(ratios))) if ratios else ""


def first_table(results: Results, names: list[str]) -> Table:
    """Fresh processes: import, then preparation and first call with empty and with full cache."""
    table = Table(title="first call: empty / full cache", box=SIMPLE_HEAD)
    table.add_column("case")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    firsts = {(r["case"], r["peer"]): r["report"] for r in results if r["action"] == "first"}
    for case in CASES:
        if any((case, name) in firsts for name in names):
            table.add_row(case, *(first_cell(firsts.get((case, name))) for name in names))
    return table


def first_cell(report: dict[str, Any] | None) -> str:
    if report is None:
        return ""
    if "failed" in report:
        return "failed"
    cold, warm = report["cold"], report["warm"]
    return " / ".join(duration(r["first"] / 1e3) for r in (cold, warm))


def memory_table(results: Results, names: list[str]) -> Table:
    """Fresh processes: peaks above the state before a call, and what stays between calls."""
    title = "memory in MiB, full cache: peak of first call / of a warm call + kept between calls"
    table = Table(title=title, box=SIMPLE_HEAD)
    for heading in ("case", "of graphc's: arena, packed", *names):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    found = {(r["case"], r["peer"]): memory_of(r) for r in results if r["action"] == "first"}
    for case in CASES:
        cells = [memory_cell(found.get((case, name))) for name in names]
        if any(cells):
            own = found.get((case, "graphc")) or {}
            held = f"{own['arena']:.1f}, {own['packed']:.1f}" if "arena" in own else ""
            table.add_row(case, held, *cells)
    return table


def memory_of(result: dict[str, Any]) -> dict[str, float] | None:
    return result["report"].get("warm", {}).get("memory")


def memory_cell(memory: dict[str, float] | None) -> str:
    if memory is None:
        return ""
    return f"{memory['first']:.0f} / {memory['warm']:.1f} + {memory['kept']:.1f}"


def memory_above(results: Results) -> list[str]:
    """The cases of which warm calls of graphc, its arena included, need more than NumPy's do."""
    found = {(r["case"], r["peer"]): memory_of(r) for r in results if r["action"] == "first"}
    lines = []
    for case in CASES:
        own, other = found.get((case, "graphc")), found.get((case, "numpy"))
        if own and other:
            needs, limit = own["warm"] + own["arena"], other["warm"] + other["kept"]
            if needs > limit + NOISE:
                lines.append(f"{case} needs {needs:.1f} MiB, NumPy {limit:.1f}")
    return lines


def failures(results: Results) -> list[str]:
    """One line per distinct failure."""
    lines: dict[str, None] = {}
    for r in results:
        report = r["report"]
        parts = {"": report} | {who: report[who] for who in ("graphc", r["peer"]) if who in report}
        for who, part in parts.items():
            if "failed" in part:
                lines[f"{r['case']}, {who or r['peer']}: {part['failed']}"] = None
    return list(lines)


def show(console: Console, results: Results, peers: list[str]) -> None:
    for threads in sorted({r["threads"] for r in results if r["action"] == "pair"}):
        console.print(steady_table(results, peers, threads))
    if any(r["action"] == "first" for r in results):
        console.print(first_table(results, ["graphc", *(p for p in peers if p != "numpy")]))
        console.print(memory_table(results, ["graphc", *peers]))
        for line in memory_above(results):
            console.print(f"memory above NumPy's: {line}", style="red", markup=False)
    roofs = [(r["threads"], r["report"]["roof"]) for r in results if "roof" in r["report"]]
    for threads in sorted({t for t, _ in roofs}):
        gflops = middle([roof["gflops"] for t, roof in roofs if t == threads])
        gbytes = middle([roof["gbytes"] for t, roof in roofs if t == threads])
        console.print(f"roof, {threads} thread(s): {gflops:.0f} GFLOP/s, copy {gbytes:.0f} GB/s")
    console.print("multiples: the peer's time over graphc's, so above 1 graphc is faster")
    for line in failures(results):
        console.print(f"failed: {line}", style="red", markup=False)
