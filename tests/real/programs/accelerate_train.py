"""Trains by Accelerate on all ranks, with torch's loader."""

import torch
from accelerate import Accelerator
from images import ImageFiles, network, options


def say(text):
    # In one piece: the other rank writes into the same pipe.
    print(f"{text}\n", end="", flush=True)


def main():
    args = options(workers=1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    ranks = accelerator.num_processes
    loader = torch.utils.data.DataLoader(
        ImageFiles(args.data, 8 * args.steps * ranks),
        batch_size=8,
        shuffle=True,
        num_workers=args.workers,
    )
    model = network(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    step = 0
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        if step % 100 == 0:
            say(f"rank {accelerator.process_index} step {step} loss {loss.item():.4f}")
    say(f"rank {accelerator.process_index} of {ranks} done: {step} steps")
    accelerator.end_training()


if __name__ == "__main__":
    main()
