"""Train a small grid detector on synthetic scenes: boxes and classes per image, as in COCO."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

SIDE, PATCH, CLASSES = 64, 16, 20
GRID = SIDE // PATCH
FIELDS = ("boxes", "labels", "area", "iscrowd", "image_id", "orig_size", "size")
WIDTHS = (4, 1, 1, 1, 1, 2, 2)
Target = dict[str, Tensor]


def make_sample(index: int) -> dict[str, Any]:
    """An image with three to eight boxes (centre, width, height)."""
    rng = np.random.default_rng(index)
    boxes = rng.random((int(rng.integers(3, 9)), 4), dtype=np.float32)
    target = {
        "boxes": boxes,
        "labels": rng.integers(0, CLASSES, len(boxes)),
        "area": boxes[:, 2] * boxes[:, 3],
        "iscrowd": (rng.random(len(boxes)) < 0.1).astype(np.int64),
        "image_id": np.array([index]),
        "orig_size": np.array([480, 640]),
        "size": np.array([SIDE, SIDE]),
    }
    image = rng.integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8)
    return {"__key__": f"{index:06}", "image.npy": image, "target.pyd": target}


def write_shard(path: Path, count: int) -> None:
    with wds.TarWriter(str(path)) as shard:
        for index in range(count):
            shard.write(make_sample(index))


def to_tensors(sample: tuple[np.ndarray, dict[str, np.ndarray]]) -> tuple[Tensor, Target]:
    image, target = sample
    fields = {name: torch.from_numpy(values) for name, values in target.items()}
    return torch.from_numpy(image), fields


def collate(samples: list[tuple[Tensor, Target]]) -> tuple[Tensor, list[Target]]:
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_table(samples: list[tuple[Tensor, Target]]) -> tuple[Tensor, Tensor]:
    images, targets = collate(samples)
    tables = []
    for position, target in enumerate(targets):
        rows = len(target["labels"])
        columns = [torch.full((rows, 1), float(position))]
        sizes = zip(FIELDS, WIDTHS)
        columns += [target[name].float().reshape(-1, n).expand(rows, n) for name, n in sizes]
        tables.append(torch.cat(columns, 1))
    return images, torch.cat(tables)


def split_table(table: Tensor, images: int) -> list[Target]:
    counts = torch.bincount(table[:, 0].long(), minlength=images).tolist()
    return [dict(zip(FIELDS, rows.split(WIDTHS, 1))) for rows in table[:, 1:].split(counts)]


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(3 * PATCH * PATCH, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 4 + CLASSES))


def detection_loss(output: Tensor, targets: list[Target]) -> Tensor:
    total = output.new_zeros(())
    for found, target in zip(output, targets):
        column, row = (target["boxes"][:, :2] * GRID).long().clamp_(0, GRID - 1).unbind(1)
        cell = found[row * GRID + column]
        weight = (target["iscrowd"].flatten() == 0) / (1 + target["area"].flatten())
        distance = (cell[:, :4].sigmoid() - target["boxes"]).abs().sum(1)
        labels = target["labels"].flatten().long()
        entropy = functional.cross_entropy(cell[:, 4:], labels, reduction="none")
        total = total + (weight * (distance + entropy)).mean()
    return total / len(targets)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--pack", action="store_true", help="one table for the targets of a batch")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build_model(512, args.layers).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    join = collate_table if args.pack else collate
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder, "scenes.tar")
        write_shard(shard, args.steps * args.batch)
        scenes = wds.WebDataset(str(shard), shardshuffle=False).decode()
        scenes = scenes.to_tuple("image.npy", "target.pyd").map(to_tensors)
        loader = DataLoader(scenes.batched(args.batch, join), batch_size=None, num_workers=1)
        for step, (images, targets) in enumerate(loader, 1):
            if args.pack:
                targets = split_table(targets, len(images))
            patches = functional.unfold(images.float().div_(255), PATCH, stride=PATCH)
            loss = detection_loss(model(patches.transpose(1, 2)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
