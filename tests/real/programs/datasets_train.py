"""Trains on a stream of Hugging Face `datasets`, mapped as it is read."""

import datasets
import torch
from images import decoded, files, label_of, network, options


def rows(folder, count):
    paths = files(folder)
    for number in range(count):
        yield {"path": str(paths[number % len(paths)])}


def load(row):
    from pathlib import Path

    path = Path(row["path"])
    return {"image": torch.from_numpy(decoded(path)), "label": label_of(path)}


def main():
    args = options()
    torch.manual_seed(0)
    data = datasets.IterableDataset.from_generator(
        rows, gen_kwargs={"folder": str(args.data), "count": 8 * args.steps}
    ).map(load, remove_columns=["path"])
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=args.workers)
    model = network(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    for step, batch in enumerate(loader, 1):
        loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    print(f"done: {step} steps")


if __name__ == "__main__":
    main()
