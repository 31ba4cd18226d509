"""The command line, as its tests run it."""

from __future__ import annotations

import pytest

from graphc.cli.commands import main


@pytest.fixture
def run(capsys):
    """Run the command line in this process: (exit status, stdout, stderr)."""

    def call(*arguments):
        status = 0
        try:
            main([str(a) for a in arguments])
        except SystemExit as request:
            status = request.code or 0
        streams = capsys.readouterr()
        return status, streams.out, streams.err

    return call
