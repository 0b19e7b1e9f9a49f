"""A torch loader whose worker dies: `torch_workers.py START_METHOD HOW...`.

Torch's error for a dead worker depends on what it detects first: a signal, a closed pipe, or a poll.
This program prints the same line for all of them.
"""

import ctypes
import multiprocessing
import os
import signal
import sys

from torch.utils.data import DataLoader, Dataset

import headspace


class Dying(Dataset):
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 20:
            if self.how == "exit":
                os._exit(1)
            if self.how == "segfault":
                ctypes.string_at(0)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "error":
                raise LookupError("no item 20")
        return index


def outcome(loader):
    seen = 0
    try:
        for batch in loader:
            seen += len(batch)
    except LookupError as error:
        return str(error).splitlines()[-1]
    except (RuntimeError, OSError, EOFError):
        return "worker died"
    return f"{seen} seen"


if __name__ == "__main__":
    method, *hows = sys.argv[1:]
    if method == "forkserver":
        multiprocessing.set_forkserver_preload(["torch"])
    for how in hows:
        try:
            loader = headspace.wrap(
                DataLoader(Dying(how), batch_size=4, num_workers=1, multiprocessing_context=method),
                name=how,
            )
            said = outcome(loader)
            del loader
        except RuntimeError:  # Torch's handler of SIGCHLD may raise it a moment later.
            said = "worker died"
        print(how, said, flush=True)
