"""Train a classifier of short texts on a CPU, on one source of texts after the other."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NEWS_WORDS, CODE_WORDS = 18_000, 6_000
WORDS = 24
TOPICS = 20


class Texts(Dataset[tuple[torch.Tensor, int]]):
    """Texts as numbers of words, with their topics. News come first, then program code."""

    def __init__(self, news: int, code: int) -> None:
        self.news, self.code = news, code

    def __len__(self) -> int:
        return self.news + self.code

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng(index)
        first, count = (0, NEWS_WORDS) if index < self.news else (NEWS_WORDS, CODE_WORDS)
        topic = int(rng.integers(TOPICS))
        words = rng.integers(0, count // TOPICS, WORDS) * TOPICS
        words += np.where(rng.random(WORDS) < 0.6, topic, rng.integers(0, TOPICS, WORDS))
        return torch.from_numpy(first + words), topic


class Classifier(nn.Module):
    """The mean of the words' vectors, and a small network."""

    def __init__(self, size: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(NEWS_WORDS + CODE_WORDS, size)
        blocks: list[nn.Module] = [nn.Linear(size, width), nn.ReLU()]
        for _ in range(layers):
            blocks += [nn.Linear(width, width), nn.ReLU()]
        self.network = nn.Sequential(*blocks, nn.Linear(width, TOPICS))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.network(self.words(words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--news-steps", type=int, default=200)
    parser.add_argument(
        "--flush-denormal", action="store_true", help="denormal numbers become zero"
    )
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(args.flush_denormal)
    torch.manual_seed(0)

    news_steps = min(args.news_steps, args.steps)
    texts = Texts(news_steps * args.batch, (args.steps - news_steps) * args.batch)
    loader = DataLoader(texts, args.batch, num_workers=1)
    model = Classifier(48, args.width, args.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    for step, (words, topics) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(words), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
