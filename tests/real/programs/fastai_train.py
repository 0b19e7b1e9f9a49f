"""Trains by fastai's Learner and its own loader."""

import fastai.callback.progress  # noqa: F401  (adds `no_bar`)
import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from images import ImageFiles, network, options


class Images(ImageFiles):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return torch.from_numpy(image), torch.tensor(label)


def main():
    args = options(workers=1)
    torch.manual_seed(0)
    train = DataLoader(Images(args.data, 8 * args.steps), bs=8, num_workers=args.workers)
    valid = DataLoader(Images(args.data, 64), bs=8, num_workers=0)
    learner = Learner(
        DataLoaders(train, valid, device="cpu"),
        network(args.width),
        loss_func=torch.nn.functional.cross_entropy,
    )
    with learner.no_bar():
        learner.fit(1, lr=0.001)
    print(f"done: {learner.train_iter} steps")


if __name__ == "__main__":
    main()
