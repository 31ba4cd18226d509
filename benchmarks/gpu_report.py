"""What a run of `benchmarks.gpu` says: a line for each case as it comes, and the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.gpu_cases import Case


@dataclass(frozen=True)
class Machine:
    """Bytes per second of a copy; FLOP/s of a large product by what it multiplies."""

    copy: float
    multiply: dict[str, float]

    def least(self, case: Case) -> float:
        """The seconds below which no program for a case stays."""
        return max(case.bytes / self.copy, case.flops / self.multiply[case.unit])

    def __str__(self) -> str:
        products = ", ".join(f"{r / 1e12:,.0f} TFLOP/s in {u}" for u, r in self.multiply.items())
        return f"a copy moves {self.copy / 1e9:,.0f} GB/s; a large product makes {products}"


def seconds_of(found: dict[str, Any]) -> float:
    """Time on the device; of a call, where the host takes part in the run."""
    device = found.get("device", float("nan"))
    return float(device if device == device else found.get("call", float("nan")))


def best_peer(report: dict[str, Any]) -> tuple[str, float]:
    """The fastest of the others, by time on the device."""
    times = {n: seconds_of(f) for n, f in report.items() if n != "graphc" and "failed" not in f}
    times = {name: seconds for name, seconds in times.items() if seconds == seconds}
    name = min(times, key=lambda n: times[n], default="")
    return name, times.get(name, float("nan"))


def line(case: Case, report: dict[str, Any], machine: Machine) -> str:
    return "  ".join(c for c in cells(case, report, [*report], machine) if c)


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.{0 if seconds > 1e-3 else 1}f}" if seconds == seconds else "-"


def cells(case: Case, report: dict[str, Any], names: list[str], machine: Machine) -> list[str]:
    own = report.get("graphc", {})
    seconds = seconds_of(own)
    known = seconds == seconds
    rates = [
        f"{case.bytes / seconds / 1e9:,.0f}" if known and case.bytes else "",
        f"{case.flops / seconds / 1e12:,.1f}" if known and case.flops else "",
        f"{machine.least(case) / seconds:.0%}" if known else "",
    ]
    found = [microseconds(own.get("call", float("nan"))), microseconds(seconds), *rates]
    for name in names:
        if name == "graphc":
            continue
        other = report.get(name, {})
        failed = "failed" if "failed" in other else microseconds(seconds_of(other))
        found.append(failed if other else "")
    best = best_peer(report)[1]
    wrong = " WRONG" if "error" in own and "failed" in own else ""
    made = ", ".join(f"{count} {route}" for route, count in own.get("products", {}).items())
    return [
        case.name,
        *found,
        made,
        (f"{best / seconds:.2f}x" if known and best == best else "") + wrong,
    ]


def table(
    cases: dict[str, Case], results: dict[str, Any], names: list[str], machine: Machine
) -> str:
    """Markdown: times in microseconds; the last column is the best other time over graphc's."""
    titles = ["case", "call", "device", "GB/s", "TFLOP/s", "of the roof", *names[1:], "products by"]
    titles.append("ratio")
    lines = [f"{machine}.", "", "| " + " | ".join(titles) + " |"]
    lines.append("|---" + "|---:" * (len(titles) - 1) + "|")
    for name, report in results.items():
        lines.append("| " + " | ".join(cells(cases[name], report, names, machine)) + " |")
    return "\n".join(lines) + "\n"


def failures(results: dict[str, Any]) -> list[str]:
    return [
        f"{name}, {each}: {found['failed']}"
        for name, report in results.items()
        for each, found in report.items()
        if "failed" in found
    ]
