"""One page of everything that a compilation was: the graph, its stages, kernels, memory and time.

story.py      what the page tells, as plain data: it puts together what the files below find
rows.py       graphs as rows of small numbers, each stage as what differs from the one before
changes.py    what a stage merged, took into kernels and moved
kernels.py    kernels with their texts, and which lines belong together
memory.py     the arena over time; timeline.py: when everything runs
page.py       the data and assets/ in one file, which asks for nothing else
"""
