"""The command line, one file a command."""

from graphc.cli.commands import main as main
