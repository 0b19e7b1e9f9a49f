"""Train a network to name the phoneme of each frame of an utterance."""

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

BANDS = 40
PHONEMES = 48
NO_LABEL = -100


class Utterances(Dataset[tuple[Tensor, Tensor]]):
    """Frames of speech and their phonemes."""

    def __init__(self, count: int) -> None:
        self.lengths = np.random.default_rng(0).integers(20, 240, count)
        self.sounds = np.random.default_rng(1).standard_normal((PHONEMES, BANDS))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(index)
        phonemes = rng.integers(0, PHONEMES, self.lengths[index] // 5 + 1).repeat(5)
        phonemes = phonemes[: self.lengths[index]]
        frames = self.sounds[phonemes] + rng.standard_normal((len(phonemes), BANDS))
        return torch.from_numpy(frames.astype(np.float32)), torch.from_numpy(phonemes)


class Batches(Sampler[list[int]]):
    """Random batches. With buckets, the utterances of some batches are sorted by length first."""

    def __init__(self, lengths: np.ndarray, batch: int, bucket_batches: int) -> None:
        self.lengths, self.batch, self.bucket_batches = lengths, batch, bucket_batches

    def __len__(self) -> int:
        return len(self.lengths) // self.batch

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng(2)
        order = rng.permutation(len(self.lengths))
        if self.bucket_batches:
            pool = self.bucket_batches * self.batch
            pools = [order[start : start + pool] for start in range(0, len(order), pool)]
            order = np.concatenate([one[np.argsort(self.lengths[one])] for one in pools])
        batches = order[: len(self) * self.batch].reshape(-1, self.batch)
        yield from rng.permutation(batches).tolist()


def collate(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    frames, phonemes = zip(*samples)
    return (
        pad_sequence(list(frames), batch_first=True),
        pad_sequence(list(phonemes), batch_first=True, padding_value=NO_LABEL),
    )


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(BANDS, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, PHONEMES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--bucket-batches", type=int, default=0, help="batches sorted together")
    parser.add_argument("--layers", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    utterances = Utterances(args.steps * args.batch)
    batches = Batches(utterances.lengths, args.batch, args.bucket_batches)
    loader = DataLoader(utterances, batch_sampler=batches, num_workers=1, collate_fn=collate)
    model = build_model(256, args.layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step, (frames, phonemes) in enumerate(loader, 1):
        scores = model(frames)
        loss = nn.functional.cross_entropy(
            scores.flatten(0, 1), phonemes.flatten(), ignore_index=NO_LABEL
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
