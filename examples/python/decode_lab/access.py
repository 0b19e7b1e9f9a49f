"""Chooses the frames that a training loop reads: the whole clip, a random subclip, or a few frames spread over it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Literal, get_args

from .formats import Clip

Pattern = Literal["whole", "subclip", "sparse"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


def choose_frames(clip: Clip, pattern: Pattern, frames: int, rng: random.Random) -> tuple[int, ...]:
    """Frame numbers, in ascending order.

    A subclip has `frames` consecutive frames. A sparse access has one random frame from each of `frames` equal
    parts of the clip (temporal segment sampling). If the clip has fewer than `frames` frames, all are chosen.
    """
    count = min(frames, clip.frames)
    if pattern == "whole":
        return tuple(range(clip.frames))
    if pattern == "subclip":
        start = rng.randint(0, clip.frames - count)
        return tuple(range(start, start + count))
    edges = [part * clip.frames // count for part in range(count + 1)]
    return tuple(rng.randrange(a, b) for a, b in itertools.pairwise(edges))


def order_clips(clips: Sequence[Clip], rng: random.Random) -> list[Clip]:
    """Each clip once, in random order."""
    return rng.sample(list(clips), len(clips))
