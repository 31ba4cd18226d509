"""A small network learns a hidden function: the sample program of Takion, with graphc.

Batches of 10, layers 200-100-25-3 with ReLU between them, mean squared error, SGD of rate 1e-5.
Takion's sample trains on nothing in particular; here a fixed network of the same kind draws the
targets, so that the loss has somewhere to go.

    python examples/takion.py
    python examples/takion.py --plot loss.png --checkpoint run
"""

import time
from pathlib import Path

import click
import numpy as np

import graphc as gc

BATCH, INPUTS, OUTPUTS = 10, 200, 3
PATH = click.Path(path_type=Path)


def network():
    return gc.nn.Sequential(
        gc.nn.Dense(INPUTS, 100),
        gc.nn.relu,
        gc.nn.Dense(100, 25),
        gc.nn.relu,
        gc.nn.Dense(25, OUTPUTS),
    )


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and what a network with other parameters makes of them."""
    x = np.asarray(gc.random.normal(gc.random.key(1), (count, INPUTS)))
    teacher = network()
    y = gc.compile(teacher)(teacher.init(gc.random.key(2)), x)
    return x, 100 * y


def model() -> gc.Model:
    return gc.Model(network(), loss=gc.nn.mse, optimizer=gc.optim.sgd(1e-5), seed=3)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--updates", default=10_000, show_default=True, help="Batches to learn from.")
@click.option("--quick", is_flag=True, help="500 updates only.")
@click.option("--plot", type=PATH, help="Save a picture of the loss, e.g. loss.png.")
@click.option("--checkpoint", type=PATH, help="A folder to go on from when run again.")
def main(updates, quick, plot, checkpoint) -> None:
    """Train the network and say how the loss went."""
    updates = 500 if quick else updates
    data = gc.data.arrays(samples(1000), BATCH, shuffle=True)
    learner = model()
    start = time.perf_counter()
    history = learner.fit(data, epochs=-(-updates // len(data)), checkpoint=checkpoint)
    seconds = time.perf_counter() - start
    print(f"{learner.parameter_count:,} parameters, {learner.step:,} updates in {seconds:.2f} s")
    print(f"loss {history['loss'][0]:.4g} -> {history['loss'][-1]:.4g}")
    if plot is not None:
        history.plot(plot)


if __name__ == "__main__":
    main()
