"""Phrases that several modules print."""

from __future__ import annotations


def format_count(number: int, noun: str) -> str:
    """A number with its noun, such as `1 clip` or `2 processes`."""
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{plural}"


def describe_workers(workers: int, pool: str) -> str:
    """The workers of a combination, such as `1 thread` or `2 processes`."""
    return format_count(workers, "thread" if pool == "threads" else "process")
