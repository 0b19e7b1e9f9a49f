"""Train a network to find the joints of a person in a picture, in short epochs."""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

SIDE = 48
JOINTS = 17
PEOPLE = 8_000


def write_annotations(path: Path) -> None:
    rng = np.random.default_rng(0)
    joints = rng.random((PEOPLE, JOINTS, 2)).round(5)
    visible = rng.integers(0, 3, (PEOPLE, JOINTS))
    people = [
        {"id": number, "joints": joints[number].tolist(), "visible": visible[number].tolist()}
        for number in range(PEOPLE)
    ]
    path.write_text(json.dumps({"annotations": people}))


def read_annotations(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    people = json.loads(path.read_text())["annotations"]
    return [
        (np.array(one["joints"], np.float32), np.array(one["visible"], np.float32) > 0)
        for one in people
    ]


class People(Dataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    """Pictures of people with the positions of their joints, and which of the joints are visible."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.people: list[tuple[np.ndarray, np.ndarray]] | None = None

    def __len__(self) -> int:
        return PEOPLE

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if self.people is None:
            self.people = read_annotations(self.path)
        joints, visible = self.people[index]
        picture = np.random.default_rng(index).random((SIDE, SIDE), dtype=np.float32)
        column, row = (joints * (SIDE - 1)).astype(int).T
        picture[row, column] += 4
        return torch.from_numpy(picture), torch.from_numpy(joints), torch.from_numpy(visible)


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Flatten(), nn.Linear(SIDE * SIDE, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 2 * JOINTS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epoch", type=int, default=20, help="steps of an epoch")
    parser.add_argument("--keep-workers", action="store_true")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "annotations.json")
        write_annotations(path)
        people = People(path)
        loader = DataLoader(
            people,
            args.batch,
            sampler=RandomSampler(people, num_samples=args.epoch * args.batch),
            num_workers=2,
            persistent_workers=args.keep_workers,
        )
        model = build_model(args.width, args.layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for epoch in range(args.steps // args.epoch):
            total = 0.0
            for pictures, joints, visible in loader:
                found = model(pictures).view(-1, JOINTS, 2)
                distance = (found - joints).square().sum(dim=2)
                loss = (distance * visible).sum() / visible.sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / args.epoch:.4f}", flush=True)


if __name__ == "__main__":
    main()
