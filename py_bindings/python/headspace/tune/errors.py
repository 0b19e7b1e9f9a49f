"""Defines `TuneError`, an error with a message for the user."""

from __future__ import annotations


class TuneError(Exception):
    """Says what is wrong and what to do. Nothing was run, or recorded outcomes are kept."""
