"""Trains by torchdata's stateful loader, with workers that persist over short epochs."""

import torch
from images import ImageFiles, network, options
from torchdata.stateful_dataloader import StatefulDataLoader


def main():
    args = options(workers=2)
    torch.manual_seed(0)
    per_epoch = max(args.steps // 6, 1)
    loader = StatefulDataLoader(
        ImageFiles(args.data, 8 * per_epoch),
        batch_size=8,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    model = network(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(6):
        model.train()
        step = 0
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(f"epoch {epoch}: {step} steps, loss {loss.item():.4f}")
    print(f"done: {step} steps in the last epoch")


if __name__ == "__main__":
    main()
