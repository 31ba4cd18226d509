"""The version of graphc; the package's metadata take it from here."""

__version__ = "0.1.0"
