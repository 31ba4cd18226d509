"""Parts of other projects that they do not promise, a file per project; nothing else touches any.

For each touch it says what that buys, and what happens where the other project has changed:
something public and slower takes its place.  `tests/seams` removes the parts to try that, and says
in one sentence which of them has changed.  What bought less than a tenth of a first call is gone.

Figures are CPU time of one Zen 5 core, Python 3.11, and the newest versions in docs/versions.md.
"""
