"""Mutated ONNX files: is one ever more than a GraphError?

    python -m benchmarks.hostile.onnx_files --count 100000

ONNX's own small cases and its light networks are changed: bits and bytes of the file, and
operators, attributes, names, dimensions, element types, versions and order of what it holds.  Each
is loaded and traced in a child process; one in ten also runs on the interpreter, one in forty
compiled.  An exception that is no GraphError, a signal, more than CPU_SECONDS or more memory than
the child may have is printed with the number that makes it again.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import graphc as gc
from benchmarks.hostile.children import campaign
from benchmarks.hostile.judge import last_line
from benchmarks.onnx_cases import Interpreted, cases
from graphc.formats.onnx.model import OnnxModel
from graphc.formats.onnx.reader import read

CPU_SECONDS = 8  # of one file; the kernel ends the child then
MOST_MORE = 800 << 20  # bytes that a file may add to the child's memory; VGG-19 takes 500 MB
LARGEST = 1 << 18  # bytes of a file that is worth changing
NUMBERS = (0, 1, -1, 2, 3, 7, 8, 64, 255, 65536, 1 << 31, (1 << 62) + 1, -(1 << 63))
SHAPES = ((), (1,), (2, 3), (0,), (1, 3, 8, 8), (4,))
WORDS = ("", "x", "NOTSET", "SAME_UPPER", "linear", "reflect", "mean", "ij,jk->ik", "\u00e9")


@cache
def originals() -> list[bytes]:
    """The files that are changed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [
            case.model.SerializeToString()
            for kind in ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
            for case in cases(kind)
        ]
    return [data for data in found if len(data) < LARGEST]


@cache
def operators() -> list[str]:
    import onnx.defs

    return sorted({schema.name for schema in onnx.defs.get_all_schemas()})


# ------------------------------------------------------------------------------------- changes


def a_bit(draw: random.Random, data: bytearray) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def some_bytes(draw: random.Random, data: bytearray) -> None:
    start = draw.randrange(len(data))
    data[start : start + draw.choice((1, 2, 8))] = draw.randbytes(draw.choice((1, 2, 8)))


def a_piece(draw: random.Random, data: bytearray) -> None:
    start = draw.randrange(len(data))
    end = min(len(data), start + draw.choice((1, 8, 64)))
    data[start:end] = data[start:end] * draw.choice((0, 2))


BYTES = (a_bit, a_bit, some_bytes, a_piece)


def an_operator(draw: random.Random, model: Any) -> None:
    node = draw.choice(model.graph.node)
    node.op_type = draw.choice(operators())


def a_number(draw: random.Random, old: int) -> int:
    return draw.choice((old + 1, old - 1, -old, 2 * old, *NUMBERS)) % (1 << 63)


def an_attribute(draw: random.Random, model: Any) -> None:
    node = draw.choice(model.graph.node)
    if not node.attribute or draw.random() < 0.2:
        others = [n for n in model.graph.node if n.attribute]
        if others:
            node.attribute.append(draw.choice(draw.choice(others).attribute))
        return
    made = draw.choice(node.attribute)
    kind = draw.random()
    if kind < 0.1:
        node.attribute.remove(made)
    elif kind < 0.2:
        made.type = draw.randrange(16)
    elif made.ints:
        k = draw.randrange(len(made.ints))
        made.ints[k] = a_number(draw, made.ints[k])
        if draw.random() < 0.3:
            made.ints.append(draw.choice(NUMBERS))
    elif made.HasField("i"):
        made.i = a_number(draw, made.i)
    elif made.HasField("f"):
        made.f = draw.choice((0.0, -1.0, float("inf"), float("nan"), 1e30, made.f * 2))
    elif made.HasField("s"):
        made.s = draw.choice(WORDS).encode()
    elif made.HasField("t"):
        a_tensor(draw, made.t)


def a_tensor(draw: random.Random, made: Any) -> None:
    kind = draw.random()
    if kind < 0.3:
        made.data_type = draw.randrange(28)
    elif kind < 0.6:
        made.dims[:] = draw.choice(SHAPES)
    elif made.raw_data:
        data = bytearray(made.raw_data)
        draw.choice(BYTES)(draw, data)
        made.raw_data = bytes(data)
    elif made.int64_data:
        made.int64_data[0] = a_number(draw, made.int64_data[0])


def a_constant(draw: random.Random, model: Any) -> None:
    if model.graph.initializer:
        a_tensor(draw, draw.choice(model.graph.initializer))


def a_name(draw: random.Random, model: Any) -> None:
    graph = model.graph
    known = [name for n in graph.node for name in (*n.input, *n.output)]
    known += [v.name for v in graph.input] + ["", "x"]
    names = draw.choice(graph.node).input if draw.random() < 0.8 else draw.choice(graph.node).output
    if not names or draw.random() < 0.2:
        names.append(draw.choice(known))
    elif draw.random() < 0.2:
        del names[draw.randrange(len(names))]
    else:
        names[draw.randrange(len(names))] = draw.choice(known)


def a_kind(draw: random.Random, model: Any) -> None:
    values = [*model.graph.input, *model.graph.output]
    if not values:
        return
    made = draw.choice(values).type.tensor_type
    kind = draw.random()
    if kind < 0.4:
        made.elem_type = draw.randrange(28)
    elif made.shape.dim and kind < 0.9:
        dim = draw.choice(made.shape.dim)
        if draw.random() < 0.3:
            dim.dim_param = draw.choice(("n", "m", "", "?"))
        else:
            dim.dim_value = a_number(draw, dim.dim_value)
    else:
        made.shape.dim.add().dim_value = draw.choice((1, 2))


def a_version(draw: random.Random, model: Any) -> None:
    if model.opset_import:
        draw.choice(model.opset_import).version = draw.choice((1, 6, 7, 9, 11, 13, 18, 21, 23, 99))


def an_order(draw: random.Random, model: Any) -> None:
    nodes = list(model.graph.node)
    k = draw.randrange(len(nodes))
    if draw.random() < 0.5:
        nodes.append(nodes[k])
    else:
        nodes.insert(draw.randrange(len(nodes)), nodes.pop(k))
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


FIELDS: tuple[Callable[[random.Random, Any], None], ...] = (
    *(an_operator, an_attribute, an_attribute, an_attribute, a_constant, a_name, a_name),
    *(a_kind, a_kind, a_version, an_order),
)


def mutated(seed: int) -> bytes:
    """File number `seed`."""
    from onnx import ModelProto

    draw = random.Random(seed)
    data = draw.choice(originals())
    if draw.random() < 0.3:
        made = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 4))):
            draw.choice(BYTES)(draw, made)
        return bytes(made)
    model = ModelProto.FromString(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if model.graph.node:
            draw.choice(FIELDS)(draw, model)
    return model.SerializeToString()


# --------------------------------------------------------------------------------------- judges


def judge(data: bytes, seed: int) -> str:
    """What became of a file: how far it came, or that it was refused."""
    path = Path(f"/tmp/hostile-{os.getpid()}.onnx")
    path.write_bytes(data)
    kind = "loaded"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = read(path)
            model = (OnnxModel if seed % 40 == 0 else Interpreted)(file)
            if seed % 10:
                kind = "traced"
                model.bound(dict.fromkeys(gc_symbols(model), 1 + seed % 3))
            else:
                kind = "run" if seed % 40 else "compiled"
                model.run([argument(k, seed) for k in model.kinds.values()])
    except gc.GraphError as error:
        return "refused" if str(error) and len(str(error).splitlines()) <= 12 else "MESSAGE"
    finally:
        path.unlink(missing_ok=True)
    return kind


def gc_symbols(model: OnnxModel) -> set[str]:
    from graphc.frontend.trace.spec import symbols_of

    return set(symbols_of(model.types))


def argument(kind: Any, seed: int) -> Any:
    """A small array of a declared kind."""
    from graphc.formats.encoded_values import CARRIED

    shape = [d if isinstance(d, int) else 1 + seed % 3 for d in kind.shape or ()]
    if kind.form != "tensor":
        return None if kind.form == "optional" else []
    if any(d < 0 for d in shape) or np.prod(shape, dtype=object) > 1 << 20:
        raise gc.GraphError("too large to be fed")
    if kind.element == "string":
        return np.full(shape, "x", object)
    draw = np.random.default_rng(seed)
    element = CARRIED.get(kind.element, kind.element) or "float32"
    return draw.integers(0, 3, shape).astype(gc.spec((), element).dtype.numpy)


def outcome(seed: int) -> str:
    """Make file number `seed` and judge it."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        try:
            data = mutated(seed)
        except (ValueError, TypeError):  # a field does not take the value
            return "unmade"
        found = judge(data, seed)
    except MemoryError:
        return f"MEMORY {last_line()}"
    except Exception:  # noqa: BLE001  (what must not be: told by its number)
        return f"TRACEBACK {last_line()}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    return f"GROWN by {more >> 20} MB, {found}" if more > MOST_MORE else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print number --first and judge it")
    options = parser.parse_args()
    originals(), operators()
    if options.show:
        import onnx.helper

        data = mutated(options.first)
        try:
            print(onnx.helper.printable_graph(onnx.load(io.BytesIO(data)).graph)[:3000])
        except Exception as error:  # noqa: BLE001  (the text is a help, no more)
            print(f"no text: {error!r}"[:300])
        print(judge(data, options.first))
        return 0
    return 0 if campaign(options.first, options.count, outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
