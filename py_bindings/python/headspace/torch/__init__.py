"""Records the stages and the queue inside torch's ``DataLoader``.

``headspace.wrap`` and `headspace run` use this package for every torch loader; there is nothing to call.
It does not import torch: a program with a loader has.

| stage | is |
|---|---|
| ``fetch`` | one batch made in a worker: the dataset's items, and ``collate`` within it |
| ``collate`` | the loader's ``collate_fn`` |
| ``pin_memory`` | one batch copied into page-locked memory |
| ``worker start`` | from the iterator being made to a worker that can begin |
| ``reorder delay`` | from the end of a batch to the end of the last one before it: what keeping the order \
costs a batch. Only batches that are made before their turn have one |

| queue | holds batches that |
|---|---|
| ``prefetch`` | are made and wait for the training loop |

If a loop's name is not its loader's type, the names of its stages begin with it: ``val fetch``. Records
name the loop of each stage.

The user's dataset, its ``collate_fn`` and the types of loader and iterator stay as they are. Replaced are:
in the worker's process the function that makes its fetcher; attributes of the fetcher, of the iterator and
of the iterator's queues; and, only while an iterator is made, two attributes of the loader.
"""

from __future__ import annotations

from headspace.torch._iterator import iterate
from headspace.torch._owner import Owner
from headspace.torch._worker import WorkerInit

__all__ = ["Owner", "WorkerInit", "iterate"]
