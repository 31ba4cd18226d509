"""An LSTM reads Python's standard library character by character, then writes some of its own.

The text is the source of the library's modules.  Of every twenty stretches of 4,096 characters one
is held out; the loss on those, in bits per character, says what the network has understood.

    python examples/char_lstm.py                          # trains, then writes
    python examples/char_lstm.py --prompt "class " --temperature 0.5
    python examples/char_lstm.py --epochs 6               # goes on from its checkpoint
    python examples/char_lstm.py --fresh --text book.txt --text another.txt
"""

import json
import math
import sysconfig
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np

import graphc as gc
from graphc import nn

CHARACTERS, QUICK = 1_500_000, 60_000
HIDDEN, WIDTH = 256, 64
BATCH, LENGTH, RATE, WARM_UP = 32, 64, 1e-2, 50
STRETCH, SHARE = 4096, 20
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
FOLDER = click.Path(file_okay=False, path_type=Path)


def bits(logits, characters):
    """Mean loss per character: how many bits a perfect code would spend on it."""
    return nn.cross_entropy(logits, characters) / math.log(2)


def network(characters: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(characters, WIDTH, weights=nn.init.normal(1.0)),
        nn.LSTM(WIDTH, hidden),
        nn.Dense(hidden, characters),
    )


def learner(net: nn.Sequential, steps: int, seed: int) -> gc.Model:
    rate = gc.optim.warm_up(gc.optim.cosine(RATE, steps), WARM_UP)
    return gc.Model(net, loss=bits, optimizer=gc.optim.adam(rate).clipped(1.0), seed=seed)


def writer(net: nn.Sequential):
    """The compiled function that lets the network write: one native loop over the characters."""
    embedding, lstm, head = net.layers
    assert isinstance(lstm, nn.LSTM)

    def write(params, prompt, key, temperature, length):
        """i32[length]: what goes on after a prompt, i32[1, n] with n > 0."""
        table, cell, scores = params

        def step(state, number):
            carry, h = state
            logits = head(scores, h) / temperature
            drawn = gc.random.categorical(gc.random.fold_in(key, number), logits)
            return lstm.step(cell, carry, embedding(table, drawn)), drawn[0]

        outputs, carry = lstm.run(cell, embedding(table, prompt))
        return gc.scan(step, (carry, outputs[:, -1]), np.arange(length))[1]

    return gc.compile(write, static=("length",))


def read_text(files: tuple[Path, ...], most: int) -> str:
    """The files one after the other, by default the modules of the standard library in ASCII."""
    if not files:
        folder = Path(sysconfig.get_path("stdlib"))
        files = tuple(sorted(folder.glob("*.py")))
        if not files:
            raise click.ClickException(
                f"there are no sources in {folder}: this Python comes without those of its "
                "library. Give a text of your own with --text FILE."
            )
        found = (path.read_text(encoding="utf-8") for path in files)
        return "".join(text for text in found if text.isascii())[:most]
    return "".join(path.read_text(encoding="utf-8") for path in files)[:most]


def parts(text: str) -> tuple[str, str]:
    """What is trained on, and the stretches held out."""
    pieces = [text[k : k + STRETCH] for k in range(0, len(text), STRETCH)]
    held = range(SHARE // 2, len(pieces), SHARE)
    if not held:
        raise click.ClickException(f"a text of {len(text):,} characters is too short to learn from")
    return (
        "".join(piece for k, piece in enumerate(pieces) if k not in held),
        "".join(pieces[k] for k in held),
    )


def train(text, ids, folder: Path, hidden=HIDDEN, epochs=3, seed=0, fresh=False, verbose=1):
    """Train to `epochs`, going on from the folder's checkpoint; the model, and what came of it."""
    start = time.perf_counter()
    training, held = (ids.encode(part) for part in parts(text))
    data = gc.data.windows(training, LENGTH, BATCH, shuffle=True, seed=seed, drop_last=True)
    measured = gc.data.windows(held, LENGTH, BATCH)
    model = learner(network(len(ids), hidden), epochs * len(data), seed)
    checkpoints = gc.Checkpoints(folder, every_seconds=10)
    if fresh:
        checkpoints.clear()
    resumed = max(checkpoints.steps(), default=0)
    history = model.fit(data, epochs, validation=measured, checkpoint=checkpoints, verbose=verbose)
    history.plot(folder / "loss.png")
    return model, {
        "characters": len(training),
        "vocabulary": len(ids),
        "parameters": model.parameter_count,
        "updates": model.step,
        "resumed_at": resumed,
        "bits": history["loss"],
        "held_out_bits": history["val_loss"],
        "seconds": time.perf_counter() - start,
    }


def show(report: dict) -> None:
    at = report["resumed_at"]
    click.echo(
        f"{report['parameters']:,} parameters, {report['updates']:,} updates "
        f"({f'went on at {at:,}' if at else 'from scratch'}) on {report['characters']:,} "
        f"characters in {report['seconds']:.1f} s"
    )
    found = ", ".join(f"{value:.3f}" for value in report["held_out_bits"])
    click.echo(f"held out, bits per character after each epoch: {found}")
    click.echo(f"\n{report['written']}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--epochs", default=3, show_default=True, type=COUNT, help="With earlier runs.")
@click.option("--text", "files", type=FILE, multiple=True, help="Learn from this text instead.")
@click.option("--prompt", default="def ", show_default=True, help="What the written text goes on.")
@click.option(
    "--write", default=600, show_default=True, type=COUNT, help="How many characters to write."
)
@click.option("--temperature", default=0.7, show_default=True, type=click.FloatRange(min=1e-3))
@click.option("--seed", default=0, show_default=True, help="Of training and of writing.")
@click.option("--folder", type=FOLDER, help="Checkpoints, picture.  [default: runs/char_lstm]")
@click.option("--fresh", is_flag=True, help="Start over: remove the folder's checkpoints first.")
@click.option("--quick", is_flag=True, help="A small network, a short text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(files, prompt, write, temperature, folder, quick, as_json, **options) -> None:
    """Learn the language of a text and write in it."""
    text = read_text(files, QUICK if quick else CHARACTERS)
    ids = gc.data.Characters(text)
    place = tempfile.TemporaryDirectory() if quick and folder is None else nullcontext(folder)
    options |= {"hidden": 32 if quick else HIDDEN, "verbose": 0 if as_json else 1}
    try:
        begun = ids.encode(prompt or "\n")[None]
        with place as found:
            model, report = train(text, ids, Path(found or "runs/char_lstm"), **options)
    except gc.GraphError as error:
        raise click.ClickException(str(error)) from None
    key = gc.random.key(options["seed"])
    written = writer(model.network)(model.params, begun, key, np.float32(temperature), write)
    report["written"] = prompt + ids.decode(written)
    click.echo(json.dumps(report)) if as_json else show(report)


if __name__ == "__main__":
    main()
