"""What is found in a picture and in a text: results whose sizes the data decides.

    scores, boxes ──> those over a threshold ──> best first ──> those that overlap no better one
    text          ──> where words begin and end ──> how often each length occurs

Both are compiled whole, once: however many boxes or words there are, the same code runs.

    python examples/found.py
    python examples/found.py --boxes 2000 --json
"""

import json

import click
import numpy as np

import graphc as gc

THRESHOLD, OVERLAP = 0.6, 0.5


def shared_area(boxes):
    """The area of each two boxes (left, top, right, bottom) together, over that of both."""
    corner = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    other = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    both = np.prod(np.maximum(other - corner, 0), axis=-1)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    return both / (area[:, None] + area[None, :] - both)


def best_boxes(boxes, scores):
    """Boxes over the threshold that overlap no better one that is kept, the best first."""
    places = np.nonzero(scores > THRESHOLD)[0]
    places = places[np.argsort(-scores[places])]
    found = boxes[places]
    near = shared_area(found) > OVERLAP

    def step(dropped, row):
        index, overlaps = row
        kept = np.logical_not(dropped[index])
        later = np.arange(dropped.shape[0]) > index
        return dropped | (overlaps & later & kept), kept

    start = np.zeros(found.shape[0], np.bool_)
    _, kept = gc.scan(step, start, (np.arange(found.shape[0]), near))
    return found[kept]


def word_lengths(text):
    """The lengths of words in a text of bytes, and how often each occurs."""
    letters = (text != ord(" ")) & (text != ord("\n"))
    edges = np.concatenate([[False], letters, [False]])
    begins = np.nonzero(edges[1:] & ~edges[:-1])[0]
    ends = np.nonzero(~edges[1:] & edges[:-1])[0]
    return np.unique(ends - begins, return_counts=True)


def picture(rng, count):
    """Boxes around a few things, and their scores."""
    things = rng.uniform(0, 100, (5, 2))
    corner = things[rng.integers(0, 5, count)] + rng.normal(0, 2, (count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(18, 22, (count, 2))], axis=1)
    return boxes.astype("f4"), rng.uniform(0, 1, count).astype("f4")


@click.command()
@click.option("--boxes", default=400, show_default=True, help="Boxes of each picture.")
@click.option("--quick", is_flag=True, help="Few boxes.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def main(boxes, quick, as_json):
    rng = np.random.default_rng(0)
    count = 60 if quick else boxes
    find, measure = gc.compile(best_boxes), gc.compile(word_lengths)
    kept = [len(find(*picture(rng, count))) for _ in range(4)]
    text = np.frombuffer((__doc__ or "").encode(), np.uint8)
    lengths, counts = measure(text)
    record = {
        "boxes": count,
        "kept": kept,
        "compiled": len(find.compiles),
        "words": int(counts.sum()),
        "lengths": {int(n): int(c) for n, c in zip(lengths, counts, strict=True)},
    }
    if as_json:
        click.echo(json.dumps(record))
        return
    click.echo(f"{count} boxes a picture, kept: {kept}; compiled {record['compiled']} time(s)")
    click.echo(f"{record['words']} words; of each length: {record['lengths']}")


if __name__ == "__main__":
    main()
