"""Records the stages and the queue inside torch's ``DataLoader``.

``headspace.wrap`` and `headspace run` use this package for every torch loader. You need not call it. It does
not import torch, because a program with a torch loader has already imported it.

| stage | definition |
|---|---|
| ``fetch`` | making one batch, including ``collate``: in a worker, or on the training thread if \
``num_workers=0`` |
| ``collate`` | the loader's ``collate_fn`` |
| ``pin_memory`` | copying one batch into page-locked memory |
| ``hand-off (worker)`` | in a worker: serializing a batch, without writing it to the pipe |
| ``hand-off`` | on the training thread: from the moment at which the first bytes of a batch from a \
worker are in the pipe until the training thread has it |
| ``worker start`` | from the creation of the iterator until a worker can begin |
| ``reorder delay`` | the time that a finished batch waits for earlier batches, because the loader keeps the \
order. Only batches that are finished before their turn have this delay |

| queue | content |
|---|---|
| ``prefetch`` | finished batches that wait for the training loop |

If the name of a loop is not the type of its loader, the names of its stages begin with the name of the
loop: ``val fetch``. Records contain the loop of each stage.

The user's dataset, its ``collate_fn`` and the types of loader and iterator do not change. In the worker
process, this package replaces the function that creates the fetcher, and the pickler of
``multiprocessing``'s queues. In either process, it replaces attributes of the fetcher, of the iterator and of
the iterator's queues, and two attributes of the loader, only while an iterator is created.
"""

from __future__ import annotations

from headspace._loops.owner import Owner
from headspace.torch._iterator import iterate
from headspace.torch._worker import WorkerInit

__all__ = ["Owner", "WorkerInit", "iterate"]
