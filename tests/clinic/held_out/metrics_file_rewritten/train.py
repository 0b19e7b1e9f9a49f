"""Train a regressor on tables, and keep the loss and the size of each gradient in a CSV file."""

import argparse
import csv
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS = 64
Row = dict[str, float]


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows of a table with a noisy target."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, COLUMNS, generator=generator)
        noise = torch.randn(count, 1, generator=generator)
        self.targets = self.inputs[:, :8].mean(1, keepdim=True) + 0.1 * noise

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.targets[index]


class MetricsLogger:
    """Metrics of the run in a CSV file."""

    def __init__(self, path: Path, append: bool) -> None:
        self.path = path
        self.append = append
        self.rows: list[Row] = []

    def log(self, row: Row) -> None:
        self.rows.append(row)

    def save(self) -> None:
        if not self.rows:
            return
        is_new = not self.path.exists()
        with self.path.open("a" if self.append else "w", newline="") as file:
            writer = csv.DictWriter(file, self.rows[0].keys())
            if is_new or not self.append:
                writer.writeheader()
            writer.writerows(self.rows)
        if self.append:
            self.rows.clear()


def gradient_norms(parameters: Iterable[tuple[str, nn.Parameter]]) -> Row:
    return {
        name: parameter.grad.norm().item()
        for name, parameter in parameters
        if parameter.grad is not None
    }


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(COLUMNS, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--append", action="store_true", help="write only the new rows")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        logger = MetricsLogger(Path(folder, "metrics.csv"), args.append)
        rows = Rows(args.steps * args.batch)
        loader = DataLoader(rows, args.batch, shuffle=True, num_workers=1)
        model = build_model(args.width, args.layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step, (inputs, targets) in enumerate(loader, 1):
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            norms = gradient_norms(model.named_parameters())
            logger.log({"step": step, "loss": loss.item(), **norms})
            if step % args.save_every == 0:
                logger.save()
            if step % 100 == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)
        logger.save()


if __name__ == "__main__":
    main()
