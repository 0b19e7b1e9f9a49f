"""The leaks that `programs/leaks.py` plants, and how the verdict names each."""

from __future__ import annotations

#: The cause, and words of the text, for each planted leak. None if it is not a leak.
LEAKS: dict[str, tuple[str, tuple[str, ...]] | None] = {
    "list": ("objects", ("`list`", "numpy.ndarray float64[2048]", "`history` of `train_list`")),
    "set": ("objects", ("`set`", "Result", "`failures` of `train_set`")),
    "closure": ("objects", ("`list`", "function", "`callbacks` of `train_closure`")),
    "traceback": ("objects", ("`list`", "ValueError", "`errors` of `train_traceback`")),
    "graph": ("autograd_graph", ("`total` of `train_graph`", "loss.item()")),
    "losses": ("autograd_graph", ("`list`", "Backward0`", "`values` of `Meter`", "`detach()`")),
    "generator": ("objects", ("ValueError", "`failed` of `Reader`", "`reader` of `read`")),
    "generator_dict": (
        "objects",
        ("`dict`", "numpy.ndarray float64[2048]", "`seen` of `read_cached`"),
    ),
    "native": ("native", ("native code",)),
    "cache": ("objects", ("`dict`", "`decoded` of `Samples`", "`samples` of `train_cache`")),
    "lru_cache": ("objects", ("`dict`", "`transform`")),
    "queue": ("objects", ("`collections.deque`", "`queue` of `queue.Queue`", "`logger`")),
    "thread_local": ("objects", ("`list`", "thread-local", "`buffers`")),
    "workers": ("objects", ("worker process", "`list`", "`kept` of `Cached`")),
    "page_cache": None,
}

#: The kinds that need torch.
NEED_TORCH = {"graph", "losses", "workers"}


def find_missing_words(kind: str, text: str) -> list[str]:
    """The words that the text of a finding about this leak lacks."""
    expected = LEAKS[kind]
    return [word for word in (expected[1] if expected else ()) if word not in text]
