"""Train an autoencoder on patches of short video clips, which the loader decodes."""

import argparse
import functools

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SIDE, SCALE, PATCH = 224, 4, 8


def decode(packet: Tensor) -> Tensor:
    """Frames of a clip, in linear light and a quarter of the size."""
    light = packet.float().mul_(1 / 255).pow_(2.2)
    return functional.avg_pool2d(light, SCALE)


class Clips(Dataset):
    """Clips that start at different frames of one recording."""

    def __init__(self, count: int, frames: int) -> None:
        self.count, self.frames = count, frames
        generator = torch.Generator().manual_seed(0)
        shape = (frames + 32, 3, SIDE, SIDE)
        self.recording = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        first = index % 32
        return decode(self.recording[first : first + self.frames])


def set_decoder_threads(threads: int, worker: int) -> None:
    torch.set_num_threads(threads)


def build_model(width: int, layers: int) -> nn.Module:
    size = 3 * PATCH * PATCH
    blocks: list[nn.Module] = [nn.Linear(size, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, size))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--decoder-threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(
        Clips(args.steps * args.batch, args.frames),
        batch_size=args.batch,
        num_workers=args.workers,
        worker_init_fn=functools.partial(set_decoder_threads, args.decoder_threads),
    )
    model = build_model(args.width, args.layers).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, clips in enumerate(loader, 1):
        patches = functional.unfold(clips.flatten(0, 1), PATCH, stride=PATCH).transpose(1, 2)
        loss = functional.mse_loss(model(patches), patches)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
