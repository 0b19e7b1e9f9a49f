"""Trains a small network on frames that Ray Data fetches from a bucket and linearises."""

import argparse
import os
import socket
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import ray
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIDE = 32
PATCH = 48
BATCH = 16
BLOCK = 32
CLASSES = 10
CURVE = np.linspace(0.0, 1.0, 256) ** 2.2


def fetch(rows: dict[str, np.ndarray], latency: float) -> dict[str, np.ndarray]:
    """The bytes of each frame of the block, one request a frame."""
    frames = np.empty((len(rows["id"]), 3 * SIDE * SIDE), dtype=np.uint8)
    for frame, key in zip(frames, rows["id"], strict=True):
        time.sleep(latency)
        frame[:] = np.random.default_rng(int(key)).integers(0, 256, len(frame))
    return {"frame": frames, "label": rows["id"] % CLASSES}


def linearise(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    linear = np.interp(rows["frame"], np.arange(256), CURVE)
    return {"frame": linear.astype(np.float32), "label": rows["label"]}


def scale(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"frame": (rows["frame"] - 0.3) / 0.3, "label": rows["label"]}


def batches(shard: ray.data.DataIterator) -> Iterator[dict[str, torch.Tensor]]:
    yield from shard.iter_torch_batches(batch_size=BATCH, prefetch_batches=2)


def spectral_norms(network: nn.Module) -> list[float]:
    weights = [weight.detach() for weight in network.parameters() if weight.dim() == 2]
    return [torch.linalg.matrix_norm(weight, 2).item() for weight in weights]


def train(
    rank: int, ranks: int, port: int, width: int, norms: bool, shard: ray.data.DataIterator
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = [nn.Linear(PATCH, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    network: nn.Module = nn.Sequential(*hidden, nn.Linear(width, CLASSES))
    if ranks > 1:
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
        network = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    history = []
    for step, batch in enumerate(batches(shard)):
        scores = network(batch["frame"].view(len(batch["frame"]), -1, PATCH)).mean(dim=1)
        loss = nn.functional.cross_entropy(scores, batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if norms and rank == 0:
            history.append(spectral_norms(network))
        if step % 100 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    if ranks > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="an even number")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--fetchers", type=int, default=1)
    parser.add_argument("--latency-ms", type=float, default=2.0)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument(
        "--norms", action="store_true", help="rank 0 notes the norms of all weights"
    )
    args = parser.parse_args()

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory("", "r", "/tmp", ignore_cleanup_errors=True) as folder:
        ray.init(
            num_cpus=4, object_store_memory=300_000_000, include_dashboard=False, _temp_dir=folder
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = args.steps * BATCH * args.ranks
        dataset = (
            ray.data.range(rows, override_num_blocks=rows // BLOCK)
            .map_batches(
                fetch,
                fn_kwargs={"latency": args.latency_ms / 1000},
                batch_size=BLOCK,
                compute=ray.data.TaskPoolStrategy(size=args.fetchers),
                num_cpus=0.25,
            )
            .map_batches(linearise, batch_size=BLOCK, num_cpus=0.5)
            .map_batches(scale, batch_size=BLOCK, num_cpus=0.5)
        )
        if args.ranks == 1:
            train(0, 1, 0, args.width, args.norms, dataset.iterator())
        else:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            task = ray.remote(num_cpus=0)(train)
            shards = enumerate(dataset.streaming_split(args.ranks, equal=True))
            options = args.ranks, port, args.width, args.norms
            ray.get([task.remote(i, *options, shard) for i, shard in shards])
        ray.shutdown()


if __name__ == "__main__":
    main()
