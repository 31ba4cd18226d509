"""What the commands share: options, loading models, reading feeds, printing."""

from __future__ import annotations

import _thread
import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.base.record import replace
from graphc.errors import FeedError, GraphError, LimitError, RunError, plain
from graphc.limits import DEFAULTS, set_limits

if TYPE_CHECKING:
    import numpy as np

    from graphc.config import Config
    from graphc.frontend.files.loaded_graph import LoadedGraph
    from graphc.ir.types import Type

MODEL = click.Path(path_type=Path)
MANY_NODES = 2000

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


DRAWN_AT_ONCE = 1 << 18  # random numbers
GRACE_SECONDS = 2.0  # that a command may take to end once its time is over


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--time-limit and --limit, which hold while the command runs."""

    @functools.wraps(command)
    def limited(
        *args: Any, time_limit: float | None, limits: tuple[str, ...], **options: Any
    ) -> Any:
        set_limits(limits)
        with seconds_limited(time_limit):
            return command(*args, **options)

    listed = ", ".join(DEFAULTS)
    for option in (
        click.option(
            "--time-limit",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="Stop after so many seconds.",
        ),
        click.option(
            "--limit", "limits", multiple=True, metavar="NAME=N", help=f"Change a limit: {listed}."
        ),
    ):
        limited = option(limited)
    return limited


@contextmanager
def seconds_limited(seconds: float | None) -> Iterator[None]:
    """Raise LimitError when what runs inside takes longer.

    Native code sees its cancel flag, Python code is interrupted; what is in a call that does
    neither (LLVM) ends with the process a little later.
    """
    if seconds is None:
        yield
        return
    error = LimitError(
        f"the time limit of {seconds:g} seconds is over", hint="--time-limit sets it"
    )
    over = threading.Event()

    def stop() -> None:
        over.set()
        runs = sys.modules.get("graphc.runtime.call.execute")
        if runs is not None:
            runs.stop_all()
        _thread.interrupt_main()
        sent.set()
        if not ended.wait(GRACE_SECONDS):
            click.echo(f"error: {error}", err=True)
            os._exit(1)

    sent, ended = threading.Event(), threading.Event()
    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        try:
            yield
        finally:  # a stopped run may end before Python is interrupted, which must happen in here
            ended.set()
            timer.cancel()
            if over.is_set():
                sent.wait(GRACE_SECONDS)
    except (KeyboardInterrupt, RunError):
        ended.set()
        if over.is_set():
            raise error from None
        raise


seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="How long to look.",
)


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The compile options that several commands take, collected by `make_config`."""
    command = limit_options(command)
    options = [
        click.option("--devices", metavar="NAMES", help="Devices in order: cpu:0,cpu:1."),
        click.option(
            "--place",
            "constraints",
            multiple=True,
            callback=lambda context, option, value: value or None,
            metavar="NAME=SPEC",
            help="Run a named value (or %12) on such a device: h=cpu:1.",
        ),
        click.option(
            "--soft-placement",
            is_flag=True,
            default=None,
            help="Ignore constraints that no device satisfies.",
        ),
        click.option("--costs", metavar="WHICH", help="static, measured or a file of costs."),
        click.option(
            "--threads", type=click.IntRange(0), help="Worker threads per kernel (0: all cores)."
        ),
        click.option("--opt", type=click.Choice(["0", "1", "2"]), help="Optimisation level."),
        click.option("--backend", type=click.Choice(["llvm", "numba"]), help="Kernel backend."),
        click.option("--dump", type=MODEL, help="Write every stage to this folder."),
        click.option("--compress", is_flag=True, default=None, help="16-bit transfers."),
        click.option(
            "--compress-mode",
            type=click.Choice(["truncate", "nearest", "saturate"]),
            help="How 16-bit transfers drop bits (implies --compress).",
        ),
        click.option(
            "--precision",
            type=click.Choice(["f32", "bf16", "tf32"]),
            help="What products of f32 read: bf16 where the machine multiplies it faster; tf32 on "
            "GPUs.",
        ),
        click.option(
            "--error-budget",
            type=click.FloatRange(0),
            metavar="RELATIVE",
            help="Most that 16-bit transfers may change a result.",
        ),
        click.option("--check-finite", is_flag=True, default=None, help="Report NaN and Inf."),
        click.option("--fast-math/--strict", default=None, help="Reassociate sums or not."),
        click.option(
            "--parity", is_flag=True, default=None, help="The same bits on CPUs and on GPUs."
        ),
        click.option(
            "--memory-limit", type=click.IntRange(0), metavar="BYTES", help="Most memory to use."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def make_config(options: dict[str, Any]) -> Any:
    """The Config of the options of `config_options` (taken out of the dict)."""
    from graphc.config import Config

    names = (
        "devices",
        "constraints",
        "soft_placement",
        "costs",
        "threads",
        "opt",
        "backend",
        "dump",
        "compress",
        "precision",
        "error_budget",
        "check_finite",
        "fast_math",
        "parity",
        "memory_limit",
        "target",
    )
    given = {name: options.pop(name) for name in names if name in options}
    given["compress"] = options.pop("compress_mode", None) or given.get("compress")
    if given.get("devices"):
        names_given = (name.strip() for name in given["devices"].split(","))
        given["devices"] = tuple(name for name in names_given if name)
    if given.get("opt") is not None:
        given["opt"] = int(given["opt"])
    return Config.create(**{name: value for name, value in given.items() if value is not None})


def load_graph(
    path: Path, config: Any = None, *, weights: bool = True, key: bytes | None = None
) -> LoadedGraph:
    """A .gir, .onnx, .pt2 or .keras file, or the graph inside a .gcx file, as a LoadedGraph.

    The latter is for the devices that the file was compiled for, and with the precision and other
    options that decide values, where none are given.  With a key it must be a .gcx file that was
    signed with it.
    """
    from graphc.frontend.files.gir_files import graph_of_text, options_of, read_text
    from graphc.frontend.files.loaded_graph import LoadedGraph
    from graphc.runtime.files.gcx_files import devices_of, text_of

    compiled = path.suffix == ".gcx"
    if key is not None and not compiled:
        raise GraphError(f"{path.name} has no signature", hint="graphc compile --sign signs a .gcx")
    if path.suffix == ".onnx":
        from graphc.formats.onnx.model import OnnxModel
        from graphc.formats.onnx.reader import read as read_onnx

        return OnnxModel(read_onnx(path), config)
    if path.suffix == ".keras":
        from graphc.learn.keras.model import KerasModel
        from graphc.learn.keras.model import read as read_keras

        return KerasModel(read_keras(path), config)
    if path.suffix == ".pt2":
        from graphc.formats.torch.archive import read as read_torch
        from graphc.formats.torch.model import TorchModel

        return TorchModel(read_torch(path), config)
    text = text_of(path, key) if compiled else read_text(path)
    if compiled and not text:
        raise GraphError(
            f"{path.name} holds a program without its graph, which can only be run",
            hint="name the file that it was compiled from",
        )
    read = graph_of_text(path, text, weights=weights)
    if compiled and config is not None:
        found = {**options_of(path.name, text), "devices": devices_of(path)}
        left = {name: value for name, value in found.items() if not _is_given(config, name)}
        config = replace(config, **left)
    return LoadedGraph(read.value, config, read.stage)


def _is_given(config: Config, option: str) -> bool:
    """Whether the command line, or who calls, says something about an option."""
    from graphc.config import Config

    context = click.get_current_context(silent=True)
    said = context.params if context is not None else {}
    names = (option, "compress_mode") if option == "compress" else (option,)
    is_default = getattr(config, option) == getattr(Config(), option)
    return not is_default or any(said.get(name) is not None for name in names)


@contextmanager
def progress(what: str, nodes: int) -> Iterator[None]:
    """A spinner on stderr while something slow happens; only for big graphs, only on a terminal."""
    if nodes < MANY_NODES or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} {nodes} nodes"):
        yield


@contextmanager
def without_prints() -> Iterator[None]:
    """What the program prints is not shown: one that is run over and over would print each time,
    in the midst of --json."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


@contextmanager
def prints_aside(as_json: bool) -> Iterator[None]:
    """With --json, what the program prints goes to stderr."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield


def print_json(record: Any) -> None:
    click.echo(json.dumps(record, indent=2, default=str))


def print_table(title: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    """A table: drawn by rich on a terminal, plain aligned columns elsewhere."""
    cells = [tuple(_cell(cell) for cell in row) for row in rows]
    numeric = [
        all(isinstance(row[k], int | float) for row in rows) if rows else False
        for k in range(len(columns))
    ]
    if not sys.stdout.isatty():
        _plain_table(columns, cells, numeric)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", pad_edge=False)
    for name, right in zip(columns, numeric):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    Console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.0f}"
    return plain(str(value))


def _plain_table(columns: list[str], cells: list[tuple[str, ...]], numeric: list[bool]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    for row in [tuple(columns), *cells]:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric)
        )
        click.echo("  ".join(padded).rstrip())


# ------------------------------------------------------------------------------------ feeds


def read_feeds(items: tuple[str, ...]) -> dict[str, Any]:
    """Feeds from NAME=FILE.npy, NAME=FILE.npz, FILE.npz (every array in it) or NAME=NUMBER."""
    feeds: dict[str, Any] = {}
    for item in items:
        name, equals, source = item.partition("=")
        found = _read_feed(name, source) if equals else _read_archive(Path(item))
        for key, value in found.items():
            if key in feeds:
                raise FeedError(f"feed {key!r} is given twice")
            feeds[key] = value
    return feeds


def _read_feed(name: str, source: str) -> dict[str, Any]:
    number = _number(source)
    if number is not None:
        return {name: number}
    path = Path(source)
    if path.suffix != ".npz":
        return {name: _load(path)}
    arrays = _read_archive(path)
    if name in arrays:
        return {name: arrays[name]}
    if len(arrays) == 1:
        return {name: next(iter(arrays.values()))}
    raise FeedError(f"{path} holds {', '.join(map(repr, arrays))}, none of them is {name!r}")


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower())


def _read_archive(path: Path) -> dict[str, Any]:
    if path.suffix != ".npz":
        raise FeedError(
            f"--feed {path} has no parameter name", hint="write --feed NAME=FILE.npy or FILE.npz"
        )
    return dict(_load(path))


def _load(path: Path) -> Any:
    import tokenize
    import zipfile
    import zlib

    import numpy as np

    if path.exists() and not path.is_file():
        raise FeedError(f"{path} is no ordinary file", hint="a device or pipe may never end")
    try:
        found = np.load(path, allow_pickle=False)
        # An archive reads its arrays when they are asked for, and finds out only then.
        made = found if isinstance(found, np.ndarray) else dict(found.items())
        if isinstance(made, dict) and not all(isinstance(a, np.ndarray) for a in made.values()):
            raise ValueError
        return made
    except OSError as error:
        raise FeedError(f"cannot read {path}: {error.strerror or error}") from None
    except (
        ValueError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        SyntaxError,
        tokenize.TokenError,
        RecursionError,
        MemoryError,
        OverflowError,
        NotImplementedError,
    ):
        raise FeedError(f"{path} is not a .npy or .npz file of plain arrays") from None


def all_feeds(
    loaded: Any, feeds: dict[str, Any], binding: dict[str, int], seed: int | None
) -> dict[str, Any]:
    """Feeds and, with a seed, arrays for what is missing, in sizes that feeds or --bind say.

    Raises GraphError where the two disagree, and where neither says a size.
    """
    from graphc.ir.types import substitute

    told = _sizes_of(loaded, feeds)
    for name in sorted(told.keys() & binding.keys()):
        if told[name] != binding[name]:
            raise GraphError(
                f"--bind {name}={binding[name]}, and the feeds have {name}={told[name]}",
                hint="leave one out",
            )
    if seed is None and not binding:
        return complete_feeds(feeds, loaded.params, loaded.declared, seed)
    bindable(list(loaded.declared.values()), {**told, **binding})
    types: Any = {n: substitute(kind, {**told, **binding}) for n, kind in loaded.declared.items()}
    made = complete_feeds(feeds, loaded.params, types, seed)
    for name, words in getattr(loaded, "words", {}).items():
        if name in made and name not in feeds:  # places were drawn
            made[name] = words[made[name] % len(words)]
    return made


def _sizes_of(loaded: Any, feeds: dict[str, Any]) -> dict[str, int]:
    """The sizes that feeds have, of the names of dimensions."""
    import numpy as np

    from graphc.frontend.trace.spec import bind

    pairs = [
        (name, kind) for name, kind in loaded.declared.items() if name in feeds and kind.symbols()
    ]
    return bind(
        [name for name, _ in pairs],
        [kind for _, kind in pairs],
        [np.shape(feeds[name]) for name, _ in pairs],
    )


def complete_feeds(
    feeds: dict[str, Any], names: tuple[str, ...], types: Mapping[str, Type], seed: int | None
) -> dict[str, Any]:
    """Feeds with raw bf16 arrays given their type back and, with a seed, missing ones drawn.

    Raises FeedError for a missing one that is not drawn, or has no type to draw it of.
    """
    import numpy as np

    from graphc.frontend.compile.memory_check import check_bytes

    missing = [name for name in names if name not in feeds]
    if missing and seed is None and feeds.keys() <= set(names):
        listed = ", ".join(map(repr, missing[:8]))
        hint = f"--feed {missing[0]}=FILE.npy, or --seed 0 for random arrays"
        raise FeedError(f"no feed for parameter {listed}", hint=hint)
    if undrawn := [name for name in missing if seed is not None and name not in types]:
        raise FeedError(
            f"no feed for parameter {undrawn[0]!r}, and no declared type to draw it of",
            hint=f"--feed {undrawn[0]}=FILE.npy",
        )
    rng = np.random.default_rng(seed)
    made = dict(feeds)
    drawn = [k for n, k in types.items() if seed is not None and n not in made and k.is_static]
    check_bytes("the feeds", sum(k.nbytes for k in drawn), "random arrays")
    for name, kind in types.items():
        value = made.get(name)
        if value is None and seed is not None and kind.is_static:
            made[name] = random_array(rng, kind)
        raw = isinstance(value, np.ndarray) and value.dtype.kind == "V"
        if raw and value is not None and value.dtype.itemsize == kind.dtype.itemsize:
            made[name] = value.view(kind.dtype.numpy)
    return made


def random_array(rng: np.random.Generator, kind: Type) -> np.ndarray[Any, Any]:
    """Normal floats, small non-negative integers or random bools of a type.

    They are drawn a block at a time: Ctrl-C is heard between two of them.
    """
    import numpy as np

    element = kind.dtype
    made = np.empty(kind.dims, element.numpy)
    flat = made.reshape(-1)
    whole = element.kind == "b" or element.is_integer
    for part in (flat.real, flat.imag) if element.is_complex else (flat,):
        for first in range(0, part.size, DRAWN_AT_ONCE):
            block = part[first : first + DRAWN_AT_ONCE]
            n = block.size
            block[...] = rng.integers(0, 2, n) if whole else rng.standard_normal(n)
    return made


def write_results(path: Path, names: tuple[str, ...], results: list[Any]) -> None:
    """Results to .npz under their names, or to .npy when there is one. The file appears whole."""
    import io

    import numpy as np

    from graphc.runtime.files.files import npz, write_atomically

    results = [_storable(name, result) for name, result in zip(names, results)]
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        if len(results) != 1:
            raise GraphError(f"{len(results)} results do not fit in one .npy file", hint="use .npz")
        np.save(buffer, results[0])
    elif path.suffix == ".npz":
        buffer.write(npz(dict(zip(names, results))))
    else:
        raise GraphError(f"cannot write results to {path.name}", hint="use a .npz or .npy file")
    write_atomically(path, [buffer.getbuffer()])


def _storable(name: str, result: Any) -> Any:
    """A result as an array that files hold: strings have a type of their own there."""
    import numpy as np

    if isinstance(result, np.ndarray) and result.dtype != object:
        return result
    if isinstance(result, np.ndarray) and all(isinstance(item, str) for item in result.flat):
        return np.array(result.tolist(), np.str_).reshape(result.shape)
    raise GraphError(
        f"the result {name!r} is no array, which a file would hold",
        hint="call the model from Python: gc.load(...)(...)",
    )


def bindable(types: Sequence[Any], binding: dict[str, int]) -> Sequence[Any]:
    """The types, whose symbols have all got values. Raises GraphError for one that has none, and
    for a value of what is no symbol."""
    from graphc.frontend.trace.spec import require_symbols, symbols_of

    names = symbols_of(types)
    require_symbols(binding, names)
    if missing := sorted(names - binding.keys()):
        listed = " ".join(f"--bind {name}=1" for name in missing)
        raise GraphError(f"no value for {', '.join(missing)}", hint=f"write {listed}")
    return types
