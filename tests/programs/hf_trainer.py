"""Trains by Hugging Face's Trainer, which makes a loader for each evaluation and keeps it:
`hf_trainer.py [--workers N]`. It does not use headspace."""

import sys

import torch
import transformers

workers = int(sys.argv[2]) if sys.argv[1:] else 0
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": logits.mean(), "logits": logits}


if __name__ == "__main__":
    # One row many times: a worker that does not fork gets a file descriptor for each tensor, and torch passes at most 254.
    rows = [{"x": torch.ones(1), "labels": torch.tensor(0.0)}] * 240
    arguments = transformers.TrainingArguments(
        output_dir="out",
        num_train_epochs=2,
        per_device_train_batch_size=4,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        dataloader_num_workers=workers,
    )
    trainer = transformers.Trainer(
        model=Net(), args=arguments, train_dataset=rows, eval_dataset=rows[:32]
    )
    # A model that was loaded from a checkpoint is in evaluation mode, too.
    trainer.model.eval()
    trainer.train()
    print(trainer.state.global_step)
