"""Train a token predictor with data parallelism; each rank streams and tokenizes text."""

import argparse
import functools
import itertools
import random
from collections.abc import Iterator

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

LENGTH, GROUP, CLASSES = 256, 4, 256
SYLLABLES = [c + v for c in "bcdfghjklmnpqrstvwz" for v in "aeiou"]


class Tokenizer:
    """Byte-pair encoding of words, with the pairs ranked in advance."""

    def __init__(self, pairs: int = 3000) -> None:
        words = [a + b for a in SYLLABLES for b in SYLLABLES]
        merges = SYLLABLES + random.Random(0).sample(words, pairs)
        self.ranks = {text: rank for rank, text in enumerate(merges)}
        self.encode_word = functools.cache(self.merge_pairs)

    def merge_pairs(self, word: str) -> list[int]:
        parts = list(word)
        unknown = len(self.ranks)
        while len(parts) > 1:
            ranks = [self.ranks.get(a + b, unknown) for a, b in itertools.pairwise(parts)]
            best = min(ranks)
            if best == unknown:
                break
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self.ranks[part] for part in parts]

    def encode(self, text: str) -> Tensor:
        ids = [token for word in text.split() for token in self.encode_word(word)]
        return torch.tensor(ids[: LENGTH + 1])


def make_texts(count: int, words: int) -> list[str]:
    rng = random.Random(1)
    vocabulary = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 5))) for _ in range(2000)]
    return [" ".join(rng.choices(vocabulary, k=words)) for _ in range(count)]


class Corpus(IterableDataset):
    """An endless stream of tokenized texts: the batches of one rank."""

    def __init__(self, texts: list[str], batch: int, rank: int, ranks: int) -> None:
        self.texts, self.batch, self.rank, self.ranks = texts, batch, rank, ranks
        self.tokenizer = Tokenizer()

    def __iter__(self) -> Iterator[Tensor]:
        for number in itertools.count():
            if number // self.batch % self.ranks == self.rank:
                yield self.tokenizer.encode(self.texts[number % len(self.texts)])


class Predictor(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(3200, 64)
        blocks: list[nn.Module] = [nn.Linear(64, width), nn.ReLU()]
        for _ in range(layers):
            blocks += [nn.Linear(width, width), nn.ReLU()]
        self.net = nn.Sequential(*blocks, nn.Linear(width, CLASSES))

    def forward(self, ids: Tensor) -> Tensor:
        return self.net(self.embed(ids).unflatten(1, (-1, GROUP)).mean(2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--words", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    model = Predictor(192, 9).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    shard = (accelerator.process_index, accelerator.num_processes)
    corpus = Corpus(make_texts(512, args.words), args.batch, *shard)
    loader = DataLoader(corpus, batch_size=args.batch)
    for step, ids in zip(range(1, args.steps + 1), loader):
        logits, wanted = model(ids[:, :LENGTH]), ids[:, GROUP::GROUP] % CLASSES
        loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if step % 50 == 0:
            accelerator.print(f"step {step} loss {loss.item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
