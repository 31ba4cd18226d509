"""One model learns on several devices: replicas in step with each other, then each at its own pace.

In step: one compiled program splits a batch of 1,000 into ten parts, computes their gradients on
all devices, adds them up and updates the parameters, as if it had been one device.  With copies of
the parameters on every device gradients alone travel, and the optimiser's state may be shared out.
At its own pace: every client thread reads the parameters, computes, and updates them without
waiting; the order in which that happened is recorded, and a run that replays it ends with the same
bits.

    python examples/data_parallel.py
    python examples/data_parallel.py --devices cpu:0,cpu:1,cpu:2 --json
"""

import json
import time

import click
import numpy as np

import graphc as gc
from graphc import nn, optim, parallel

BATCH, REPLICAS, INPUTS, OUTPUTS = 1000, 10, 64, 8
NET = nn.Sequential(nn.Dense(INPUTS, 128), nn.tanh, nn.Dense(128, OUTPUTS))


def loss(params, batch):
    x, y = batch
    return nn.mse(NET(params, x), y)


def samples(rows):
    """Inputs, and what a network with other parameters makes of them, in f64."""
    x = np.random.default_rng(1).standard_normal((rows, INPUTS))
    return x, np.asarray(NET(NET.init(gc.random.key(2), "f64"), x))


def in_step(gradients, devices, batch, steps):
    """(losses, parameters, milliseconds a step, transfers a step)"""
    rule, params = optim.momentum(0.1), NET.init(gc.random.key(0), "f64")

    @gc.compile(devices=devices, threads=1)
    def step(params, state, batch):
        value, slopes = gradients(params, batch)
        return *rule.update(slopes, state, params), value

    state, losses, times = rule.init(params), [], []
    for _ in range(steps):
        start = time.perf_counter()
        params, state, value = step(params, state, batch)
        times.append(time.perf_counter() - start)
        losses.append(float(value))
    stages = {record.name: record.value for record in step.stages(params, state, batch)}
    sends = gc.show(stages["partition"]).count(" send(")
    return losses, params, 1e3 * min(times), sends


def synchronous(devices, steps):
    batch, slopes = samples(BATCH), gc.value_and_grad(loss)
    replicated = parallel.replicate(slopes, devices, REPLICAS)
    one, wanted, alone_ms, _ = in_step(slopes, ["cpu:0"], batch, steps)
    losses, params, ms, sends = in_step(replicated, devices, batch, steps)
    return {
        "loss": [losses[0], losses[-1]],
        "relative_difference": max(map(relative, leaves(params), leaves(wanted))),
        "loss_difference": max(map(relative, losses, one)),
        "ms": ms,
        "one_device_ms": alone_ms,
        "transfers": sends,
    }


def with_copies(devices, steps, shard):
    """Copies on all devices: gradients alone travel, and with `shard` state is shared out."""
    start, batch = NET.init(gc.random.key(0), "f64"), samples(BATCH)
    trainer = parallel.Synchronous(loss, start, optim.momentum(0.1), devices, shard, threads=1)
    losses, times = [], []
    for _ in range(steps):
        begun = time.perf_counter()
        losses.append(float(trainer(batch)))
        times.append(time.perf_counter() - begun)
    copies = [[v.value.tobytes() for v in leaves(tree)] for tree in trainer.params]
    return {
        "loss": [losses[0], losses[-1]],
        "same_bits_everywhere": all(copy == copies[0] for copy in copies),
        "kept_bytes": [sum(v.value.nbytes for v in state_of(each)) for each in trainer.state],
        "ms": 1e3 * min(times),
    }


def state_of(state):
    kept = state["velocity"]
    return kept if isinstance(kept[0], gc.Variable) else leaves(kept)


def leaves(params):
    return [array for layer in params if layer for array in layer.values()]


def relative(got, wanted):
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def asynchronous(devices, steps):
    """Two clients on each device, every one with rows of its own."""
    x, y = samples(BATCH)
    clients = [device for device in devices for _ in range(2)]

    def batches(k):
        own = slice(k, None, len(clients))
        return [(x[own], y[own])] * steps

    def train(replay=None):
        trainer = parallel.Asynchronous(
            loss, NET.init(gc.random.key(0), "f64"), optim.sgd(0.05), clients
        )
        done = trainer.run([batches(k) for k in range(len(clients))], replay)
        return done, [array.tobytes() for array in leaves(trainer.values())]

    done, params = train()
    again, replayed = train(done.interleaving)
    values = [value for _, value in done.losses]
    return {
        "loss": [values[0], values[-1]],
        "updates": len(values),
        "mean_staleness": sum(done.staleness) / len(values),
        "replay_has_the_same_bits": again == done and params == replayed,
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--devices", default="cpu:0,cpu:1", show_default=True, help="Comma-separated list.")
@click.option("--steps", default=100, show_default=True, help="Updates of each client.")
@click.option("--quick", is_flag=True, help="Ten steps.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(devices, steps, quick, as_json) -> None:
    """Train on several devices, synchronously and asynchronously."""
    names, steps = devices.split(","), 10 if quick else steps
    together, apart = synchronous(names, steps), asynchronous(names, steps)
    copies, shared = (with_copies(names, steps, shard) for shard in (False, True))
    if as_json:
        found = {"copies": copies, "shared_out": shared}
        click.echo(json.dumps({"synchronous": together, "asynchronous": apart, **found}))
        return
    first, last = together["loss"]
    click.echo(f"in step       {REPLICAS} replicas of {BATCH // REPLICAS} rows on {devices}")
    click.echo(f"  loss        {first:.4f} -> {last:.4f} after {steps} updates")
    click.echo(
        f"  one device  parameters differ by {together['relative_difference']:.1e}, relative"
    )
    click.echo(
        f"  a step      {together['ms']:.2f} ms, one device {together['one_device_ms']:.2f} ms"
    )
    click.echo(f"  transfers   {together['transfers']} a step")
    for title, found in (("copies  ", copies), ("shared out", shared)):
        first, last = found["loss"]
        click.echo(f"{title:14}loss {first:.4f} -> {last:.4f}, {found['ms']:.2f} ms a step")
        click.echo(f"  kept        {found['kept_bytes']} bytes on each device")
        click.echo(f"  same bits   {found['same_bits_everywhere']}")
    first, last = apart["loss"]
    click.echo(f"own pace      {2 * len(names)} clients")
    click.echo(f"  loss        {first:.4f} -> {last:.4f} after {apart['updates']} updates")
    click.echo(f"  staleness   {apart['mean_staleness']:.1f} updates of others in the mean")
    click.echo(f"  replay      same bits: {apart['replay_has_the_same_bits']}")


if __name__ == "__main__":
    main()
