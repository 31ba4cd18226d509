"""`graphc convert`: a model, or weights, in another format."""

from __future__ import annotations

from pathlib import Path

import click

from graphc.cli.common import MODEL, json_option, limit_options, print_json, print_table, read_feeds
from graphc.cli.compile import binding_option, parse_bindings

MISMATCH = 3  # exit status


@click.command("convert")
@click.argument("source", type=MODEL, required=False)
@click.option("-o", "--output", type=MODEL, help="The file to write.")
@click.option("--check", is_flag=True, help="Check how weights are converted instead.")
@click.option("--feed", "feeds", multiple=True, metavar="NAME=FILE", help="Try it on these.")
@binding_option
@limit_options
@json_option
def convert_command(
    source: Path | None,
    output: Path | None,
    check: bool,
    feeds: tuple[str, ...],
    bindings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the model SOURCE (.gir, .onnx, .pt2, .keras) as OUTPUT (.onnx, .gir; .mlir for
    StableHLO, .dot for Graphviz), or its constants and variables (.npz, .safetensors); or weights
    (.npz, .safetensors, .weights.h5, .index, a SavedModel's folder) as such a file.

    An ONNX model or StableHLO module is checked before its file appears.  With --check alone,
    layers of gc.nn, PyTorch and Keras are built with the same weights and run on the same inputs.
    """
    if check:
        if source is not None or output is not None:
            raise click.UsageError("--check takes no files")
        return _check(as_json)
    if source is None or output is None:
        raise click.UsageError("name a SOURCE and an --output, or --check")
    from graphc.formats.convert import convert

    given = read_feeds(feeds)
    made = convert(source, output, sizes=parse_bindings(bindings), feeds=given or None)
    record = {"output": made.path, "passed": made.passed, "left_out": made.left_out}
    record["without"], record["weights"] = made.without, made.weights
    if as_json:
        print_json(record)
        return
    passed = f", passed: {', '.join(made.passed)}" if made.passed else ""
    click.echo(f"{output}: {output.stat().st_size:,} bytes{passed}")
    if made.weights:
        click.echo(f"{made.weights}: {Path(made.weights).stat().st_size:,} bytes, its weights")
    for reason in made.left_out:
        click.echo(f"not checked with {reason}")
    for reason in made.without:
        click.echo(f"left out: {reason}")


def _check(as_json: bool) -> None:
    """Compare converted weights; exits with MISMATCH where some make another layer."""
    from graphc.learn.nn import conversion_checks

    found = list(conversion_checks.check_conversions())
    wrong = [outcome for outcome in found if not outcome.passed]
    rows = [
        (o.name, o.width, o.beside, o.told or f"equal, at most {o.error:.1e} apart") for o in found
    ]
    if as_json:
        print_json({"checks": [dict(zip(("layer", "width", "beside", "found"), r)) for r in rows]})
    else:
        print_table("weights there and back", ["layer", "width", "beside", "found"], rows)
    if wrong:
        raise SystemExit(MISMATCH)
