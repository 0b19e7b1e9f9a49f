"""Trains and validates by Lightning."""

import lightning
import torch
from images import ImageFiles, network, options
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.network = network(width)

    def training_step(self, batch, number):
        loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        if number % 100 == 99:
            print(f"batch {number + 1} loss {loss.item():.4f}")
        return loss

    def validation_step(self, batch, number):
        self.log("val_loss", torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    args = options()
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train = DataLoader(
        ImageFiles(args.data, 8 * args.steps), batch_size=8, num_workers=args.workers
    )
    trainer.fit(Classifier(args.width), train, DataLoader(ImageFiles(args.data, 64), batch_size=8))
    print(f"done: {trainer.global_step} steps")


if __name__ == "__main__":
    main()
