"""Trains a small model without a loader: `steps.py [OPTIONS]`. It does not use headspace.

Prints the number of steps and the sum of the weights."""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--optimizers", type=int, default=1)
parser.add_argument("--evaluate-every", type=int, default=0)
parser.add_argument(
    "--by-hand", action="store_true", help="update the weights without an optimizer"
)
parser.add_argument("--compile", action="store_true", help="compile the optimizer's step")
parser.add_argument("--loader", action="store_true", help="iterate a loader of torch")
parser.add_argument("--fails", action="store_true", help="raise an exception before the loop")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(args.optimizers)]


def update():
    for optimizer in optimizers:
        optimizer.step()


if args.compile:
    update = torch.compile(update, backend="eager")
if args.fails:
    raise ValueError("before the loop")


def evaluate():
    model.eval()
    with torch.no_grad():
        time.sleep(0.1)
        model(torch.ones(2, 4))
    model.train()


def batches():
    for _ in range(args.steps * args.accumulate):
        yield torch.ones(2, 4)


if args.loader:
    data = torch.utils.data.TensorDataset(torch.ones(2 * args.steps, 4))

    def batches():
        for _ in range(3):
            for (batch,) in torch.utils.data.DataLoader(data, batch_size=2):
                yield batch
            # Applies the remaining gradients of the epoch.
            update()


model.train()
for number, batch in enumerate(batches(), 1):
    model(batch).sum().backward()
    time.sleep(0.001)
    if number % args.accumulate:
        continue
    if args.by_hand:
        with torch.no_grad():
            model.weight -= 0.1 * model.weight.grad
    else:
        update()
    model.zero_grad()
    if args.evaluate_every and number % args.evaluate_every == 0:
        evaluate()

print(number, round(model.weight.detach().sum().item(), 3))
