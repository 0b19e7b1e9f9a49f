"""Makes the data that the programs train on: random, small, and in the format each one expects.

Each function fills a folder. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
import tarfile
from pathlib import Path

#: The fixed seed gives every machine the same data.
SEED = 13


def jpeg(numbers: random.Random, size: int) -> bytes:
    """An image with smooth structures, which takes as long to decode as a photograph."""
    from PIL import Image

    small = Image.frombytes("RGB", (size // 8, size // 8), numbers.randbytes(3 * (size // 8) ** 2))
    out = io.BytesIO()
    small.resize((size, size), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


def image_folders(folder: Path, splits: dict[str, int], size: int, classes: int = 10) -> None:
    """Writes images as `split/class/image.jpg`, the layout of ImageNet."""
    numbers = random.Random(SEED)
    for split, count in splits.items():
        for number in range(count):
            place = folder / split / f"class{number % classes:02}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number:05}.jpg").write_bytes(jpeg(numbers, size))


def imagenet(folder: Path) -> None:
    image_folders(folder, {"train": 1600, "val": 64}, 160)


def timm(folder: Path) -> None:
    image_folders(folder, {"train": 3200, "validation": 64}, 128)


def images(folder: Path) -> None:
    image_folders(folder, {"train": 1600, "val": 64}, 96)


def mnist_files(folder: Path, train: int, test: int) -> None:
    """Writes the four files of MNIST, with these numbers of random images."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    numbers = random.Random(SEED)
    for name, count in (("train", train), ("t10k", test)):
        images = struct.pack(">IIII", 0x803, count, 28, 28) + numbers.randbytes(count * 28 * 28)
        labels = bytes(numbers.randrange(10) for _ in range(count))
        for kind, content in (
            ("images-idx3-ubyte", images),
            ("labels-idx1-ubyte", struct.pack(">II", 0x801, count) + labels),
        ):
            (raw / f"{name}-{kind}").write_bytes(content)
            (raw / f"{name}-{kind}.gz").write_bytes(gzip.compress(content, 1))


def mnist(folder: Path) -> None:
    mnist_files(folder, 14_400, 2_000)


def mnist_whole(folder: Path) -> None:
    mnist_files(folder, 60_000, 2_000)


def words(folder: Path) -> None:
    """Text of 2,000 different words, in the three files of WikiText."""
    numbers = random.Random(SEED)
    vocabulary = [f"word{number}" for number in range(2000)]
    for split, count in (("train", 240_000), ("valid", 4_000), ("test", 4_000)):
        lines = [" ".join(numbers.choices(vocabulary, k=20)) for _ in range(count // 20)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")


def tokens(folder: Path) -> None:
    """Token numbers below 256, as nanoGPT reads them, and how many there are."""
    numbers = random.Random(SEED)
    for split, count in (("train", 2_000_000), ("val", 100_000)):
        high_bytes_zero = bytearray(2 * count)
        high_bytes_zero[::2] = numbers.randbytes(count)
        (folder / f"{split}.bin").write_bytes(bytes(high_bytes_zero))
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 256}))


def boxes(folder: Path) -> None:
    """Images with one labelled box each, and the description that YOLO programs read."""
    numbers = random.Random(SEED)
    for split, count in (("train", 1200), ("val", 16)):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for number in range(count):
            name = f"{number:05}"
            (folder / "images" / split / f"{name}.jpg").write_bytes(jpeg(numbers, 96))
            box = " ".join(f"{numbers.uniform(0.3, 0.6):.3f}" for _ in range(4))
            (folder / "labels" / split / f"{name}.txt").write_text(f"{number % 2} {box}\n")
    (folder / "boxes.yaml").write_text("train: images/train\nval: images/val\nnames: [one, two]\n")


def shards(folder: Path) -> None:
    """Tar files of JPEGs and their classes, as WebDataset reads them."""
    numbers = random.Random(SEED)
    for shard in range(8):
        with tarfile.open(folder / f"train-{shard}.tar", "w") as tar:
            for number in range(300):
                for suffix, content in (
                    ("jpg", jpeg(numbers, 128)),
                    ("cls", str(number % 10).encode()),
                ):
                    entry = tarfile.TarInfo(f"{shard}{number:04}.{suffix}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
