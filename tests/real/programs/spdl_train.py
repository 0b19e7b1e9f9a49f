"""Trains on JPEG files that an SPDL pipeline decodes in threads."""

import numpy as np
import torch
from images import decoded, files, label_of, network, options
from spdl.pipeline import PipelineBuilder


def load(path):
    return decoded(path), label_of(path)


def collate(items):
    images, labels = zip(*items, strict=True)
    return torch.from_numpy(np.stack(images)), torch.tensor(labels)


def main():
    args = options(decode=1, workers=2)
    torch.manual_seed(0)
    paths = files(args.data)
    wanted = (paths[number % len(paths)] for number in range(8 * args.steps))
    pipeline = (
        PipelineBuilder()
        .add_source(wanted)
        .pipe(load, concurrency=args.decode, output_order="input")
        .aggregate(8)
        .pipe(collate)
        .add_sink(4)
        .build(num_threads=args.workers + args.decode)
    )
    model = network(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    with pipeline.auto_stop():
        for step, (images, labels) in enumerate(pipeline, 1):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f}")
    print(f"done: {step} steps")


if __name__ == "__main__":
    main()
