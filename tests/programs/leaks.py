"""Trains for some seconds with a planted leak, or with its healthy twin: `leaks.py KIND (leak|healthy) SECONDS`."""

import collections
import ctypes
import functools
import queue
import sys
import threading
import time

import numpy

import headspace

KIND, VARIANT, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
LEAKS = VARIANT == "leak"
#: Number of values in an array of 16 KiB.
SIZE = 2048
#: A buffer of this many batches is full before the end.
FULL = 400


def array(step):
    return numpy.full(SIZE, float(step))


def steps(loader=range(10**9)):
    """Steps of 2 ms until the time is over."""
    end = time.monotonic() + SECONDS
    for step in headspace.wrap(loader, name="train", mode="measure"):
        yield step
        time.sleep(0.002)
        if time.monotonic() > end:
            return


def train_list():
    history = []
    for step in steps():
        history.append(array(step))
        if not LEAKS and len(history) == FULL:
            history.clear()


class Result:
    def __init__(self, step):
        self.scores = array(step)


def train_set():
    failures = set()
    for step in steps():
        failures.add(Result(step))
        if not LEAKS and len(failures) == FULL:
            failures.clear()


def make_callback(data):
    def callback():
        return data.sum()

    return callback


def train_closure():
    callbacks = []
    for step in steps():
        callback = make_callback(array(step))
        if LEAKS:
            callbacks.append(callback)
        callback()


def fails(step):
    data = array(step)
    raise ValueError(f"step {step}: {data[0]}")


def train_traceback():
    errors = []
    for step in steps():
        try:
            fails(step)
        except ValueError as error:
            errors.append(error if LEAKS else str(error))


class Reader:
    def __init__(self):
        self.failed = {}

    def __call__(self, step):
        try:
            fails(step)
        except ValueError as error:
            # The healthy program keeps the texts of the last hundred errors.
            self.failed[step if LEAKS else step % 100] = error if LEAKS else str(error)


def read():
    reader = Reader()
    for step in range(10**9):
        yield reader(step)


def train_generator():
    """A generator reads the data. One of its local variables holds the growing object."""
    for _ in steps(read()):
        pass


def read_cached():
    seen = {}
    for step in range(10**9):
        seen[step if LEAKS else step % FULL] = array(step)
        yield seen[step if LEAKS else step % FULL]


def train_generator_dict():
    """The garbage collector does not track a dictionary whose values are arrays."""
    for _ in steps(read_cached()):
        pass


def train_graph():
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    total = torch.zeros(())
    for step in steps():
        loss = model(torch.full((64, 64), float(step))).square().mean()
        total = total + (loss if LEAKS else loss.item())
        model.zero_grad()


class Meter:
    def __init__(self):
        self.values = []

    def add(self, loss):
        self.values.append(loss if LEAKS else loss.item())


def train_losses():
    """Keeps the loss of each step, with its graph."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    meter = Meter()
    for step in steps():
        meter.add(model(torch.full((64, 64), float(step))).square().mean())
        model.zero_grad()


def train_native():
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    libc.free.argtypes = (ctypes.c_void_p,)
    for step in steps():
        memory = libc.malloc(8 * SIZE)
        libc.memset(memory, step % 256, 8 * SIZE)
        if not LEAKS:
            libc.free(memory)


class Samples:
    def __init__(self):
        self.decoded = {}

    def load(self, step):
        if LEAKS or step < FULL:
            self.decoded[step] = array(step)
        return self.decoded[step if LEAKS else step % FULL]


def train_cache():
    samples = Samples()
    for step in steps():
        samples.load(step)


@functools.lru_cache(maxsize=None if LEAKS else FULL)
def transform(step):
    return array(step)


def train_lru_cache():
    for step in steps():
        transform(step)


class Logger:
    def __init__(self):
        self.pending = queue.Queue() if LEAKS else collections.deque(maxlen=FULL)

    def write(self, item):
        put = self.pending.put if LEAKS else self.pending.append
        put(item)


def train_queue():
    logger = Logger()
    for step in steps():
        logger.write(array(step))


scratch = threading.local()


def train_thread_local():
    scratch.buffers = []
    for step in steps():
        scratch.buffers.append(array(step))
        if not LEAKS:
            scratch.buffers[:-1] = []


class Cached:
    """A dataset whose worker keeps each sample."""

    def __init__(self):
        self.kept = []

    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        time.sleep(0.002)
        sample = array(index)
        if LEAKS:
            self.kept.append(sample)
        return sample


def train_workers():
    import torch.utils.data

    loader = torch.utils.data.DataLoader(Cached(), num_workers=1, batch_size=1)
    end = time.monotonic() + SECONDS
    for _ in headspace.wrap(loader, name="train", mode="measure"):
        if time.monotonic() > end:
            return


def train_page_cache():
    """Reads or maps a growing file. Its pages are in the page cache, which the kernel frees at any time."""
    import mmap
    import tempfile

    with tempfile.TemporaryFile() as file:
        for step in steps():
            file.write(array(step).tobytes())
            file.flush()
            if LEAKS and step % 200 == 199:
                # The last mapping is dropped, so at most one counts.
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                sum(mapped[:: mmap.PAGESIZE])


if __name__ == "__main__":
    globals()[f"train_{KIND}"]()
