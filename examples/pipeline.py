"""A U-Net finds discs in noisy pictures, its halves on two devices.

    picture ──> 16 ──> 32 ──> 64 ──┐          contracting: the first stages
                 │      │          │
                 └─skip─┼─skip─────┤          a skip goes straight to the device that reads it
                        └──────────┤
    mask   <── 16 <─── 32 <──── 64 ┘          expanding: the last stages

A batch goes through in chunks: while one device works on a chunk, the other works on the next.
Where the graph is cut is the compiler's choice; the schedule and its timeline are drawn before
anything runs, the timeline of a real step beside them.

    python examples/pipeline.py
    python examples/pipeline.py --schedule gpipe --checkpoint always --chunks 8 --trace unet.html
"""

import json

import click
import numpy as np

import graphc as gc
from graphc import nn, optim, parallel
from graphc.frontend.trace.tree import flatten
from graphc.runtime.observe.trace import trace
from graphc.viewer.traces import write_trace

WIDTH = 96  # of the timelines, in characters


def double(channels, made):
    return nn.Sequential(
        *(nn.Conv(channels, made, 3, padding="same"), nn.relu),
        *(nn.Conv(made, made, 3, padding="same"), nn.relu),
    )


class UNet:
    """Two levels (Ronneberger et al., 2015): parameters in a dict, and a function of pictures."""

    def __init__(self, width):
        self.parts = {
            "down0": double(1, width),
            "down1": double(width, 2 * width),
            "middle": double(2 * width, 4 * width),
            "up1": double(6 * width, 2 * width),
            "up0": double(3 * width, width),
            "mask": nn.Conv(width, 1, 1),
        }

    def init(self, key):
        keys = gc.random.split(key, len(self.parts))
        return {name: part.init(keys[k]) for k, (name, part) in enumerate(self.parts.items())}

    def __call__(self, params, x):
        def part(name, x):
            return self.parts[name](params[name], x)

        pool, skips = nn.MaxPool(2), []
        for name in ("down0", "down1"):
            skips.append(part(name, x))
            x = pool({}, skips[-1])
        x = part("middle", x)
        for name in ("up1", "up0"):
            x = np.repeat(np.repeat(x, 2, axis=2), 2, axis=3)
            x = part(name, np.concatenate([x, skips.pop()], axis=1))
        return part("mask", x)[:, 0]


def pictures(count, size):
    """Noisy pictures [count, 1, size, size] of bright discs, and where these are."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:size, :size]
    places = rng.uniform(0.2, 0.8, (count, 3, 2)) * size
    radii = rng.uniform(0.05, 0.15, (count, 3)) * size
    apart = [(rows - y) ** 2 + (columns - x) ** 2 for y, x in places.reshape(-1, 2)]
    inside = np.array(apart) < radii.reshape(-1, 1, 1) ** 2
    mask = inside.reshape(count, 3, size, size).any(axis=1).astype(np.float32)
    noise = rng.standard_normal((count, 1, size, size)).astype(np.float32)
    return mask[:, None] + 0.5 * noise, mask


def lanes(found):
    """What every device did, to scale: # for kernels, . for waiting."""
    scale, rows = WIDTH / found.seconds, []
    for number, name in enumerate(found.devices):
        cells = ["."] * WIDTH
        for event in found.events:
            if event.device == number and event.kind == "kernel":
                first, last = int(event.start * scale), int(event.end * scale)
                cells[first : last + 1] = "#" * len(cells[first : last + 1])
        rows.append(f"{name.rpartition('device:')[2]:>8} | {''.join(cells[:WIDTH])}")
    return rows


def train(net, batch, options, steps):
    """The losses, the pipeline, and the trace of one more step."""
    devices = options.pop("devices")

    def loss(params, batch):
        x, mask = batch
        return nn.binary_cross_entropy_with_logits(net(params, x), mask)

    piped, rule = parallel.pipeline(loss, devices, **options), optim.adam(3e-3)

    @gc.compile(devices=devices, threads=1)
    def step(params, state, batch):
        value, slopes = piped(params, batch)
        return *rule.update(slopes, state, params), value

    params, losses = net.init(gc.random.key(0)), []
    state = rule.init(params)
    for _ in range(steps):
        params, state, value = step(params, state, batch)
        losses.append(float(value))
    arrays = [np.asarray(leaf) for leaf in flatten((params, state, batch))[0]]
    _, found = trace(step.executable(params, state, batch), arrays)
    return losses, piped, found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--devices", default="cpu:0,cpu:1", show_default=True, help="Comma-separated list.")
@click.option("--size", default=200, show_default=True, help="Rows and columns of a picture.")
@click.option("--batch", default=8, show_default=True, help="Pictures of a step.")
@click.option("--chunks", default=4, show_default=True, help="Parts of a batch.")
@click.option("--schedule", default="1f1b", show_default=True, help="Name of a schedule.")
@click.option("--checkpoint", default="except_last", show_default=True, help="What runs twice.")
@click.option("--steps", default=20, show_default=True, help="Updates.")
@click.option("--trace", "path", help="Write the timeline of a step to this .html or .json file.")
@click.option("--quick", is_flag=True, help="Five steps on four small pictures.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(devices, size, batch, chunks, schedule, checkpoint, steps, path, quick, as_json) -> None:
    """Train a U-Net in stages, and draw what ran when."""
    if quick:
        size, batch, steps = 24, 4, 5
    options = {"chunks": chunks, "schedule": schedule, "checkpoint": checkpoint}
    options["devices"] = devices.split(",")
    losses, piped, found = train(UNet(4 if quick else 16), pictures(batch, size), options, steps)
    if path:
        write_trace(found, path)
    if as_json:
        times = {name: found.totals(k).get("kernel", 0.0) for k, name in enumerate(found.devices)}
        report = {
            "losses": losses,
            "schedule": str(piped.planned and piped.planned.schedule),
            "busy": times,
        }
        click.echo(json.dumps({**report, "seconds": found.seconds}))
        return
    click.echo(f"{batch} pictures of {size} x {size} in {chunks} chunks on {devices}")
    click.echo(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} after {steps} updates\n")
    click.echo(piped.planned)
    click.echo(f"\nmeasured: {found.seconds:.6g} s a step")
    click.echo("\n".join(lanes(found)))


if __name__ == "__main__":
    main()
