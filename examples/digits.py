"""Which digit is this? A small convolutional network learns to read 8x8 pictures of digits.

The 1797 pictures come with scikit-learn.  A fifth of them is kept for the test: they are looked at
once, after the last epoch.  A tenth of the others draws the validation curve, the rest is trained
on, each time a little moved and stretched.

    python examples/digits.py                 # a few seconds; the picture is runs/digits/loss.png
    python examples/digits.py                 # nothing left to do: it goes on from its checkpoint
    python examples/digits.py --epochs 40     # ten epochs more
    python examples/digits.py --fresh --seed 1 --log runs/digits/log && tensorboard --logdir runs
"""

import json
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import graphc as gc
from graphc import nn

BATCH, RATE, WARM_UP = 32, 3e-3, 50
COUNT = click.IntRange(min=1)
FOLDER = click.Path(file_okay=False, path_type=Path)


class Jitter(nn.Layer):
    """Pictures moved by up to half a pixel and stretched by up to a tenth, while training.

    Each picture becomes R x C': row i of R mixes the two rows of x that lie around where row i
    comes from, and so does C for the columns.
    """

    def apply(self, params, x, state=None, *, key=None, training=False):
        if not training:
            return x, state
        count, _, height, width = x.shape
        keys = gc.random.split(key, 2)
        mixers = [self.mixer(k, count, size) for k, size in zip(keys, (height, width))]
        moved = mixers[0] @ x @ mixers[1].swapaxes(-1, -2)
        gc.summary.image("moved", moved.reshape(count, height, width, 1))  # for --log
        return moved, state

    @staticmethod
    def mixer(key, count, size):
        """f32[count, 1, size, size]: linear interpolation at other places in every picture."""
        move, stretch = gc.random.uniform(key, (2, count, 1, 1, 1), minval=-1, maxval=1)
        places = np.arange(size, dtype=np.float32) - (size - 1) / 2
        wanted = places[:, None] * (1 + stretch / 10) + move / 2
        return np.maximum(0, 1 - abs(wanted - places))


def network(width: int = 32) -> nn.Sequential:
    return nn.Sequential(
        Jitter(),
        nn.Conv(1, width, 3, padding="same"),
        nn.relu,
        nn.Conv(width, width, 3, padding="same"),
        nn.relu,
        nn.MaxPool(2),
        nn.Conv(width, 2 * width, 3, padding="same"),
        nn.relu,
        nn.MaxPool(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Dense(2 * width * 2 * 2, 10),
    )


def loss(logits, digits):
    """Cross entropy with a tenth of the probability spread over all digits: some are hard to tell,
    and a network that has to be certain of them learns them by heart.
    """
    return nn.cross_entropy(logits, digits, label_smoothing=0.1)


def read_digits():
    """(pictures f32[n, 1, 8, 8] in 0..1, digits i32[n]) to train on, for validation, for the test;
    every digit has its share in each part, and the parts are the same in every run.
    """
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8), y.astype(np.int32)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
    x, x_val, y, y_val = train_test_split(x, y, test_size=0.1, random_state=0, stratify=y)
    return (x, y), (x_val, y_val), (x_test, y_test)


def learner(steps: int, seed: int, devices=("cpu:0",)) -> gc.Model:
    rate = gc.optim.warm_up(gc.optim.cosine(RATE, steps), WARM_UP)
    return gc.Model(
        network(),
        loss=loss,
        optimizer=gc.optim.adamw(rate),
        metrics=[nn.accuracy],
        seed=seed,
        devices=devices,
    )


def train(
    folder: Path, epochs=30, seed=0, fresh=False, verbose=1, devices=("cpu:0",), log=None
) -> dict:
    """Train to `epochs`, going on from the folder's checkpoint; what came of it."""
    start = time.perf_counter()
    training, validation, test = read_digits()
    data = gc.data.arrays(training, BATCH, shuffle=True, seed=seed, drop_last=True)
    model = learner(epochs * len(data), seed, devices)
    checkpoints = gc.Checkpoints(folder)
    if fresh:
        checkpoints.clear()
    resumed = max(checkpoints.steps(), default=0)
    measured = gc.data.arrays(validation, len(validation[0]))
    history = model.fit(
        data,
        epochs,
        validation=measured,
        callbacks=[gc.TensorBoard(log)] if log else [],
        checkpoint=checkpoints,
        verbose=verbose,
    )
    history.plot(folder / "loss.png")
    found = model.predict(test[0], batch=len(test[0])).argmax(axis=1)
    return {
        "parameters": model.parameter_count,
        "epochs": model.epoch,
        "updates": model.step,
        "resumed_at": resumed,
        "test_accuracy": float(np.mean(found == test[1])),
        "wrong": [[int(a), int(b)] for a, b in zip(test[1], found) if a != b],
        "tested": len(found),
        "seconds": time.perf_counter() - start,
        "picture": str(folder / "loss.png"),
    }


def show(report: dict) -> None:
    went = f"went on at update {report['resumed_at']:,}" if report["resumed_at"] else "from scratch"
    click.echo(
        f"{report['parameters']:,} parameters, {report['updates']:,} updates ({went}) "
        f"in {report['seconds']:.1f} s"
    )
    right = report["tested"] - len(report["wrong"])
    click.echo(f"test: {right} of {report['tested']} right, {100 * report['test_accuracy']:.2f} %")
    if 0 < len(report["wrong"]) < 10:
        click.echo("wrong: " + ", ".join(f"a {a} read as {b}" for a, b in report["wrong"]))
    if Path(report["picture"]).exists():
        click.echo(f"loss and accuracy of every epoch: {report['picture']}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--epochs", default=30, show_default=True, type=COUNT, help="With earlier runs.")
@click.option("--seed", default=0, show_default=True, help="First weights and order of samples.")
@click.option("--folder", type=FOLDER, help="Checkpoints and picture.  [default: runs/digits]")
@click.option("--fresh", is_flag=True, help="Start over: remove the folder's checkpoints first.")
@click.option(
    "--quick", is_flag=True, help="3 epochs; nothing is left behind unless --folder is given."
)
@click.option("--devices", default="cpu:0", show_default=True, help="Comma-separated list.")
@click.option("--log", help="A folder for TensorBoard, or a .jsonl or .csv file: what to watch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(epochs, seed, folder, fresh, quick, devices, log, as_json) -> None:
    """Train on scikit-learn's handwritten digits and read those kept for the test."""
    place = tempfile.TemporaryDirectory() if quick and folder is None else nullcontext(folder)
    with place as found:
        folder = Path(found or "runs/digits")
        try:
            rest = 0 if as_json else 1, devices.split(","), log
            report = train(folder, 3 if quick else epochs, seed, fresh, *rest)
        except gc.GraphError as error:
            raise click.ClickException(str(error)) from None
    click.echo(json.dumps(report)) if as_json else show(report)


if __name__ == "__main__":
    main()
