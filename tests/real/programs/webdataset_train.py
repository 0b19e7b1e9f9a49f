"""Trains on shards of JPEGs by WebDataset's loader."""

import io

import torch
import webdataset
from images import network, options
from PIL import Image


def tensor(content):
    import numpy as np

    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image.convert("RGB").resize((64, 64)), dtype=np.float32)
    return torch.from_numpy(pixels.transpose(2, 0, 1) / 255.0)


def number(content):
    return int(content)


def main():
    args = options(workers=1)
    torch.manual_seed(0)
    data = (
        webdataset.WebDataset(
            sorted(map(str, args.data.glob("*.tar"))),
            shardshuffle=False,
            empty_check=False,
        )
        .to_tuple("jpg", "cls")
        .map_tuple(tensor, number)
        .batched(8)
    )
    loader = webdataset.WebLoader(data, batch_size=None, num_workers=args.workers)
    model = network(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    step = 0
    while step < args.steps:
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), torch.as_tensor(labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step == args.steps:
                break
    print(f"done: {step} steps")


if __name__ == "__main__":
    main()
