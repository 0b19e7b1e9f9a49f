"""Trains by Lightning, which validates within an epoch. It does not use headspace."""

import lightning
import torch
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        return self.layer(batch).sum()

    def validation_step(self, batch, number):
        self.layer(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def loader(count):
    return DataLoader([torch.ones(1)] * count, batch_size=2)


trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    val_check_interval=25,
)
trainer.fit(Model(), loader(100), loader(20))
