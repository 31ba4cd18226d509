"""The cases of PyTorch's operator database on graphc: how many agree with eager PyTorch.

    python -m benchmarks.torch_cases                        float32, forward and backward
    python -m benchmarks.torch_cases --dtype int64 --cases 20
    python -m benchmarks.torch_cases --match linalg --verbose

Each case is an operator with arguments.  It is traced as `torch.compile(backend="graphc")` traces
what is compiled, with the decompositions of that, compiled for its sizes, and run; so is the
gradient of a weighted sum of its results.  Needs `pip install torch expecttest`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import graphc as gc
from graphc.config import Config
from graphc.formats.torch.compiled_graph import CompiledGraph
from graphc.formats.torch.decompositions import of_graphs

# Shares of the largest element, by type: kernels add in another order than PyTorch's.
TOLERANCE = {"float16": 1e-2, "bfloat16": 4e-2, "float64": 1e-9, "complex128": 1e-9}
UNSET = re.compile("empty|resize_")  # what their results hold is whatever lay in memory


class Case(NamedTuple):
    """An operator with arguments: a function of tensors alone that gives a list of tensors."""

    operator: str
    name: str
    function: Callable[..., list[Any]]
    tensors: list[Any]
    draws: bool


def cases(dtype: str, most: int, match: str = "") -> Iterator[Case]:
    """At most so many cases of each operator, and the gradients of those; drawn by one seed."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    kind = getattr(torch, dtype)
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if kind not in op.supported_dtypes("cpu") or not re.search(match, name):
            continue
        samples = list(op.sample_inputs("cpu", kind))
        chosen = random.Random(0).sample(range(len(samples)), min(most, len(samples)))
        learns = op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
        for k in chosen:
            yield from _of_sample(op, name, k, samples[k], learns)


def _of_sample(op: Any, name: str, k: int, sample: Any, learns: bool) -> Iterator[Case]:
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [k for k, v in enumerate(leaves) if isinstance(v, torch.Tensor)]

    def forward(*tensors: Any) -> list[Any]:
        given = dict(enumerate(leaves)) | dict(zip(places, tensors))
        first, rest, named = tree_unflatten(list(given.values()), spec)
        made = sample.output_process_fn_grad(op.op(first, *rest, **named))
        return [v for v in tree_flatten(made)[0] if isinstance(v, torch.Tensor)]

    def backward(*tensors: Any) -> list[Any]:
        learned = [t.is_floating_point() or t.is_complex() for t in tensors]
        tensors = tuple(t.detach().requires_grad_(yes) for t, yes in zip(tensors, learned))
        total = sum(map(_weighted, (v for v in forward(*tensors) if v.requires_grad)))
        wanted = [t for t in tensors if t.requires_grad]
        found = torch.autograd.grad(total, wanted, allow_unused=True)
        return [gradient for gradient in found if gradient is not None]

    tensors = [leaves[k] for k in places]
    draws = bool(UNSET.search(op.name)) or _draws(forward, tensors)
    yield Case(name, f"{name} {k}", forward, tensors, draws)
    if learns and not draws:
        yield Case(name, f"{name} {k} gradient", backward, tensors, draws)


def _draws(function: Callable[..., list[Any]], tensors: list[Any]) -> bool:
    """Whether results depend on random numbers."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class Notes(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found.append(torch.Tag.nondeterministic_seeded in func.tags)
            return func(*args, **(kwargs or {}))

    with Notes(), contextlib.suppress(Exception):  # it is told as "untraced"
        function(*(tensor.clone() for tensor in tensors))
    return any(found)


def _weighted(value: Any) -> Any:
    import torch

    weights = torch.cos(torch.arange(value.numel(), dtype=torch.float64)).reshape(value.shape)
    return (value * weights.to(value.dtype)).sum().abs()


def outcome(case: Case) -> tuple[str, str]:
    """ "agrees", "wrong", "refused", or "untraced" where PyTorch itself raises; and why."""
    import torch
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    def fresh() -> list[Any]:
        return [tensor.clone() for tensor in case.tensors]

    try:
        expected = case.function(*fresh())
        plain = make_fx(case.function)(*fresh())
        table = dict(of_graphs())
        graph = make_fx(functionalize(plain, remove="mutations"), table)(*fresh())
    except Exception as problem:  # noqa: BLE001 - whatever PyTorch raises for its own arguments
        return "untraced", f"{type(problem).__name__}: {problem}"[:200]
    try:
        with torch.no_grad():
            found = CompiledGraph(graph, Config.create(), shares=False)(*fresh())
    except gc.GraphError as error:
        return "refused", str(error)
    except Exception as problem:  # noqa: BLE001 - a fault of graphc's, which is told with the others
        return "wrong", f"{type(problem).__name__}: {problem}"[:200]
    made = [value for value in found if isinstance(value, torch.Tensor)]
    if len(made) != len(expected):
        return "wrong", f"{len(made)} results for {len(expected)}"
    why = [difference(a, b, case.draws) for a, b in zip(made, expected)]
    if any(why) and not _is_as_near(made, expected, case):
        return "wrong", "; ".join(filter(None, why))
    return "agrees", ""


def _is_as_near(made: list[Any], expected: list[Any], case: Case) -> bool:
    """Whether results are as near to those in float64 as PyTorch's own: what cancels is left to
    rounding."""
    import torch

    if case.draws or not all(v.dtype == torch.float32 for v in (*case.tensors, *expected)):
        return False
    exact = case.function(*(tensor.double() for tensor in case.tensors))

    def error(values: list[Any]) -> float:
        return max(float((v - e).abs().max()) for v, e in zip(values, exact) if e.numel())

    return error(made) <= 8 * error(expected)


def difference(made: Any, wanted: Any, draws: bool = False) -> str:
    """What is wrong with a result; "" for nothing. What is drawn has its type and shape alone."""
    import torch

    if (made.dtype, made.shape) != (wanted.dtype, wanted.shape):
        return f"{made.dtype}{list(made.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if draws or not wanted.numel():
        return ""
    if not (wanted.dtype.is_floating_point or wanted.dtype.is_complex):
        return "" if torch.equal(made, wanted) else f"{int((made != wanted).sum())} elements differ"
    share = TOLERANCE.get(str(wanted.dtype).removeprefix("torch."), 2e-4)
    wide = torch.complex128 if wanted.dtype.is_complex else torch.float64
    made, wanted = made.detach().to(wide), wanted.detach().to(wide)
    if not torch.equal(made.isnan(), wanted.isnan()):
        return f"{int(made.isnan().sum())} NaN for {int(wanted.isnan().sum())}"
    limits = wanted.isinf() if not wanted.is_complex() else torch.zeros_like(wanted, dtype=bool)
    if not torch.equal(made[limits], wanted[limits]):
        return "infinities differ"
    finite = wanted.isfinite()
    if not finite.any():
        return ""
    largest = max(float(wanted[finite].abs().max()), 1e-3)
    off = float((made[finite] - wanted[finite]).abs().max()) / largest
    return "" if off <= share else f"off by {off:.1e}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--cases", type=int, default=6, help="of each operator")
    parser.add_argument("--match", default="", help="a regular expression for names of operators")
    parser.add_argument("--verbose", action="store_true", help="each case that does not agree")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    start = time.perf_counter()
    for case in cases(options.dtype, options.cases, options.match):
        kind, why = outcome(case)
        counts[kind] += 1
        if kind == "refused":
            refused[case.operator] += 1
        if kind == "wrong" or (options.verbose and kind == "refused"):
            print(f"{kind}: {case.name}: {why}", flush=True)
        if sum(counts.values()) % 100 == 0 and sys.stderr.isatty():
            seconds = time.perf_counter() - start
            print(f"\r{sum(counts.values())} cases, {seconds:.0f} s", end="", file=sys.stderr)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    for name, count in sorted(refused.items()):
        print(f"  refused: {name} ({count})")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
