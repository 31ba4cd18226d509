"""Mutated dumps of every late stage: is one ever run to harm?

    python -m benchmarks.hostile --count 100000

The stages of many small models are changed by a grammar that knows the syntax of graphs: numbers,
kinds, orders, sizes, places, attributes, types, and whole operands and ops with all types after
them worked out again.  Each is read as a file is, and run in a child process: arguments, results,
constants and the arena end where a page ends that may not be touched, and hold rubbish before.
A mutation must be refused with a GraphError, or give what the reference interpreter makes of the
same graph, whatever the rubbish was.  What does not is printed with the number that makes it again.
"""

from __future__ import annotations

import argparse
import random
import sys

from benchmarks.hostile.children import campaign
from benchmarks.hostile.judge import judge, outcome
from benchmarks.hostile.models import FUNCTIONS, OPEN, dumps
from benchmarks.hostile.mutations import mutated


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print number --first and judge it")
    parser.add_argument("--models", default=",".join([*FUNCTIONS, *OPEN]))
    options = parser.parse_args()
    models = options.models.split(",")
    if options.show:
        dump, text = mutated(random.Random(options.first), models)
        print(f"# {dump.model} {dump.stage}\n{text}")
        print(judge(dump, text, options.first))
        return 0
    for model in models:
        dumps(model)
    return 0 if campaign(options.first, options.count, lambda k: outcome(k, models)) else 1


if __name__ == "__main__":
    sys.exit(main())
