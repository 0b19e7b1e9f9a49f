"""Train a classifier on spectrograms that are kept as arrays in a Hugging Face dataset."""

import argparse

import numpy as np
import torch
from datasets import Array2D, ClassLabel, Dataset, Features
from torch import nn
from torch.utils.data import DataLoader

BANDS, FRAMES = 96, 256
CLASSES = 10
Batch = dict[str, list]


def make_dataset(count: int) -> Dataset:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % CLASSES
    spectrograms = rng.standard_normal((count, BANDS, FRAMES), dtype=np.float32)
    spectrograms[np.arange(count), labels] += 2
    features = Features(
        {
            "spectrogram": Array2D(shape=(BANDS, FRAMES), dtype="float32"),
            "label": ClassLabel(num_classes=CLASSES),
        }
    )
    columns = {"spectrogram": list(spectrograms), "label": labels.tolist()}
    return Dataset.from_dict(columns, features=features)


def prepare(batch: Batch) -> Batch:
    """Normalise each spectrogram, and hide some of its frames."""
    prepared = []
    for spectrogram in batch["spectrogram"]:
        values = np.array(spectrogram, dtype=np.float32)
        values -= values.mean()
        start = np.random.randint(FRAMES - 16)
        values[:, start : start + 16] = 0
        prepared.append(torch.from_numpy(values))
    return {"spectrogram": prepared, "label": batch["label"]}


class Prepared(torch.utils.data.Dataset):
    """Arrays of the dataset, prepared a batch at a time."""

    def __init__(self, arrays: Dataset) -> None:
        self.arrays = arrays.with_format("numpy")

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitems__(self, indices: list[int]) -> list[dict]:
        batch = prepare(self.arrays[indices])
        return [dict(zip(batch, row)) for row in zip(*batch.values())]


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Conv1d(BANDS, width, 5, stride=4, padding=2), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Conv1d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--numpy-format", action="store_true", help="prepare arrays, not lists")
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    spectrograms = make_dataset(640)
    train_set = (
        Prepared(spectrograms) if args.numpy_format else spectrograms.with_transform(prepare)
    )
    loader = DataLoader(train_set, args.batch, shuffle=True, num_workers=1, persistent_workers=True)
    model = build_model(128, args.layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    while step < args.steps:
        for batch in loader:
            scores = model(batch["spectrogram"])
            loss = nn.functional.cross_entropy(scores, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 100 == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
