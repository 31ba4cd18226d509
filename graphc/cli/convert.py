"""`graphc convert`: a model, or weights, in another format."""

from __future__ import annotations

from pathlib import Path

import click

from graphc.cli.common import MODEL, json_option, limit_options, print_json, read_feeds
from graphc.cli.compile import binding_option, parse_bindings


@click.command("convert")
@click.argument("source", type=MODEL)
@click.option("-o", "--output", type=MODEL, required=True, help="The file to write.")
@click.option("--feed", "feeds", multiple=True, metavar="NAME=FILE", help="Try it on these.")
@binding_option
@limit_options
@json_option
def convert_command(
    source: Path, output: Path, feeds: tuple[str, ...], bindings: tuple[str, ...], as_json: bool
) -> None:
    """Write the model SOURCE (.gir, .onnx, .pt2) as OUTPUT (.onnx, .gir; .dot for Graphviz), or its
    constants and variables (.npz, .safetensors); or weights (.npz, .safetensors, .index) as such a
    file.

    An ONNX model is checked before its file appears.
    """
    from graphc.formats.convert import convert

    given = read_feeds(feeds)
    made = convert(source, output, sizes=parse_bindings(bindings), feeds=given or None)
    record = {"output": made.path, "passed": made.passed, "left_out": made.left_out}
    if as_json:
        print_json(record)
        return
    passed = f", passed: {', '.join(made.passed)}" if made.passed else ""
    click.echo(f"{output}: {output.stat().st_size:,} bytes{passed}")
    for reason in made.left_out:
        click.echo(f"left out: {reason}")
