"""What was wrong with what the user asked for, and the way out."""

from __future__ import annotations


class TuneError(Exception):
    """A message for the user. Nothing was run, or what was run is kept."""
