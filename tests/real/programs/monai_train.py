"""Trains a small U-Net with MONAI's transforms and threaded loader. It changes the batch in place."""

import monai
import torch
from images import decoded, files, options


def main():
    args = options(width=8)
    monai.utils.set_determinism(0)
    paths = files(args.data)
    rows = [{"image": paths[number % len(paths)]} for number in range(8 * args.steps)]
    transforms = monai.transforms.Compose(
        [
            monai.transforms.Lambdad("image", decoded),
            monai.transforms.EnsureTyped("image"),
            monai.transforms.RandFlipd("image", prob=0.5, spatial_axis=0),
            monai.transforms.RandGaussianNoised("image", prob=0.5),
        ]
    )
    loader = monai.data.ThreadDataLoader(
        monai.data.Dataset(rows, transforms), batch_size=8, num_workers=0, buffer_size=2
    )
    model = monai.networks.nets.UNet(
        spatial_dims=2,
        in_channels=3,
        out_channels=3,
        channels=(args.width, 2 * args.width),
        strides=(2,),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    for step, batch in enumerate(loader, 1):
        batch["image"] -= 0.5
        batch["target"] = batch["image"].clone()
        loss = torch.nn.functional.mse_loss(model(batch["image"]), batch["target"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {float(loss):.4f}")
    print(f"done: {step} steps")


if __name__ == "__main__":
    main()
