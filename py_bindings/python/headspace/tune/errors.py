"""Defines `TuneError`, an error with a message for the user."""

from __future__ import annotations


class TuneError(Exception):
    """An error of the input or of the storage. Its message says what is wrong and what to do.

    Either no experiment was started, or recorded outcomes are kept.
    """
