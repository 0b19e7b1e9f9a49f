"""Several threads iterate one wrapped loader at once: `threads.py MODE THREADS EPOCHS`.

Batches are so large that their digests take long, and the interpreter switches threads very
often.
"""

import sys
import threading

import headspace

mode, threads, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.setswitchinterval(1e-6)


class Loader:
    def __iter__(self):
        for i in range(120):
            yield [bytearray(50_000), {"label": i}]


loader = headspace.wrap(
    Loader(),
    mode=mode,
    name="loader",
    probe_steps=1000,
    num_caches=5,
    return_caches_after=20,
    stop_after=120,
)
counts = [0] * threads


def consume(which):
    for _ in range(epochs):
        for _ in loader:
            counts[which] += 1


running = [threading.Thread(target=consume, args=(which,)) for which in range(threads)]
for thread in running:
    thread.start()
for thread in running:
    thread.join()
print("least", min(counts))
