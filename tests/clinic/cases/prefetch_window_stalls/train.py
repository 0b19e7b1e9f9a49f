"""Train a regressor on blocks of rows, which the loader reads from an object store."""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from urllib.request import urlopen

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

BLOCKS, ROWS, COLUMNS = 64, 256, 128


class Store:
    """Blocks of rows in an object store. The last column is the target."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def read(self, block: int) -> np.ndarray:
        with urlopen(f"{self.address}/{block}") as response:
            data = bytearray(response.read())
        return np.frombuffer(data, np.float32).reshape(ROWS, COLUMNS + 1)


def serve(latency: float, port: Connection) -> None:
    """The object store: random blocks, each sent after a latency."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((BLOCKS, ROWS, COLUMNS + 1), dtype=np.float32)
    rows[..., -1] = rows[..., :8].mean(-1)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(latency)
            data = rows[int(self.path[1:])].tobytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.send(server.server_port)
    server.serve_forever()


class Windows(IterableDataset):
    """Random blocks, requested from the store a window at a time."""

    def __init__(self, store: Store, steps: int, window: int, readers: int) -> None:
        self.store, self.steps, self.window, self.readers = store, steps, window, readers

    def __iter__(self) -> Iterator[Tensor]:
        order = np.random.default_rng(1).integers(0, BLOCKS, self.steps).tolist()
        with ThreadPoolExecutor(self.readers) as pool:
            for start in range(0, self.steps, self.window):
                wanted = order[start : start + self.window]
                for rows in list(pool.map(self.store.read, wanted)):
                    yield torch.from_numpy(rows)


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(COLUMNS, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--window", type=int, default=32, help="blocks requested together")
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--latency-ms", type=float, default=45.0)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    port, sender = multiprocessing.Pipe(duplex=False)
    latency = args.latency_ms / 1000
    multiprocessing.Process(target=serve, args=(latency, sender), daemon=True).start()
    store = Store(port.recv())
    loader = DataLoader(
        Windows(store, args.steps, args.window, args.readers),
        batch_size=None,
        num_workers=1,
        prefetch_factor=args.window,
    )
    model = build_model(512, args.layers).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, rows in enumerate(loader, 1):
        loss = functional.mse_loss(model(rows[:, :COLUMNS]), rows[:, COLUMNS:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
