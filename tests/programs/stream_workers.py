"""Two worker processes load a stream: each the whole of it, or each its own part: `stream_workers.py whole|split`."""

import sys

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import headspace


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        parts = (worker.id, worker.num_workers) if sys.argv[1] == "split" else (0, 1)
        for number in range(parts[0], 96, parts[1]):
            yield torch.tensor([number])


if __name__ == "__main__":
    for _ in headspace.wrap(DataLoader(Stream(), batch_size=4, num_workers=2)):
        pass
