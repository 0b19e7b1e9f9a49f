"""Train a small convolutional network on photos of a camera, scaled down to a few pixels."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

FILES = 32
WIDTH, HEIGHT = 1600, 1200
SIDE = 96
CLASSES = 8


def write_photos(folder: Path) -> None:
    rng = np.random.default_rng(0)
    slope = np.linspace(0, 150, WIDTH)[None, :, None]
    for number in range(FILES):
        coarse = rng.integers(0, 60, (HEIGHT // 8, WIDTH // 8, 3)).repeat(8, 0).repeat(8, 1)
        grain = rng.integers(0, 16, (HEIGHT, WIDTH, 3))
        tint = [30 * (number >> bit & 1) for bit in range(3)]
        photo = (slope + coarse + grain + tint).clip(0, 255).astype(np.uint8)
        Image.fromarray(photo).save(folder / f"{number}.jpg", quality=90)


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """The photos of a folder in a small size, mirrored at random."""

    def __init__(self, folder: Path, length: int, draft: bool) -> None:
        self.folder = folder
        self.length = length
        self.draft = draft

    def __len__(self) -> int:
        return self.length

    def decode(self, path: Path) -> Image.Image:
        photo = Image.open(path)
        if self.draft:
            photo.draft("RGB", (SIDE, SIDE))
        return photo.convert("RGB")

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        photo = self.decode(self.folder / f"{index % FILES}.jpg")
        small = photo.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels = np.asarray(small, np.float32).transpose(2, 0, 1) / 255
        if np.random.default_rng(index).random() < 0.5:
            pixels = pixels[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(pixels)), index % CLASSES


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Conv2d(3, width, 5, stride=4, padding=2), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--draft", action="store_true", help="decode at a reduced size")
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        photos = Photos(Path(folder), args.steps * args.batch, args.draft)
        loader = DataLoader(photos, args.batch, shuffle=True, num_workers=args.workers)
        model = build_model(64, args.layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)
        for step, (pixels, labels) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
