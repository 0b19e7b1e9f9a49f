"""Train a model that predicts the mean brightness of patches, on images that LitData streams from a store."""

import argparse
import functools
import http.server
import multiprocessing
import tempfile
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path

import litdata
import torch
from litdata.streaming import Cache
from litdata.streaming.downloader import LocalDownloader, register_downloader
from litdata.streaming.resolver import Dir
from torch import Tensor, nn
from torch.nn import functional

SIDE, PATCH, CHUNK = 128, 16, 64
LATENCY, BURST, BASELINE = 0.02, 400e6, 8e6


class Store(http.server.SimpleHTTPRequestHandler):
    """Sends files as fast as a network with burst credits: `BURST` bytes per second, then `BASELINE`."""

    burst_bytes = 0

    def copyfile(self, source, connection) -> None:
        data = source.read()
        rate = BURST if Store.burst_bytes >= len(data) else BASELINE
        Store.burst_bytes -= len(data)
        time.sleep(LATENCY + len(data) / rate)
        connection.write(data)

    def log_message(self, *args) -> None:
        pass


def serve(folder: Path, burst_bytes: int, port: Connection) -> None:
    Store.burst_bytes = burst_bytes
    handler = functools.partial(Store, directory=folder)
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    port.send(server.server_port)
    server.serve_forever()


class StoreDownloader(LocalDownloader):
    """Downloads files from the store."""

    def download_file(self, remote: str, local: str) -> None:
        urllib.request.urlretrieve(remote, f"{local}.part")
        Path(f"{local}.part").rename(local)


def write_store(folder: Path, images: int) -> None:
    """Writes chunks of random images, as `litdata.optimize` does."""
    generator = torch.Generator().manual_seed(0)
    cache = Cache(str(folder), chunk_size=CHUNK)
    for index in range(images):
        cache[index] = torch.randint(256, (1, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    cache.done()
    cache.merge()


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(PATCH * PATCH, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 1))


def mean_error(model: nn.Module, images: Tensor) -> Tensor:
    patches = functional.unfold(images.float().div_(255), PATCH, stride=PATCH).transpose(1, 2)
    return functional.mse_loss(model(patches), patches.mean(2, keepdim=True))


# Here, so that a worker process that imports this file registers it too.
register_downloader("http://", StoreDownloader)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--burst-mb", type=int, default=140)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        store, cache = Path(folder, "store"), Path(folder, "cache")
        cache.mkdir()
        write_store(store, args.steps * args.batch)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        server = multiprocessing.Process(
            target=serve, args=(store, args.burst_mb << 20, sender), daemon=True
        )
        server.start()
        url = f"http://127.0.0.1:{receiver.recv()}"
        dataset = litdata.StreamingDataset(Dir(path=str(cache), url=url))
        loader = litdata.StreamingDataLoader(dataset, batch_size=args.batch, num_workers=1)
        model = build_model(128, args.layers).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, images in enumerate(loader, 1):
            loss = mean_error(model, images)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
