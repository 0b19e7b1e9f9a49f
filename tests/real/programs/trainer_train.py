"""Trains a small BERT by Hugging Face's Trainer, on sentences that are tokenised as they are read."""

import hashlib
import tempfile

import torch
import transformers
from images import options


class Sentences(torch.utils.data.Dataset):
    def __init__(self, folder, length):
        self.lines = (folder / "train.txt").read_text().splitlines()
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        words = self.lines[index % len(self.lines)].split()[: 8 + index % 12]
        numbers = [
            int.from_bytes(hashlib.pbkdf2_hmac("sha256", word.encode(), b"", 20)[:2]) % 1000
            for word in words
        ]
        return {"input_ids": numbers, "labels": index % 2}


def padded(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": (torch.tensor(ids) != 0).long(),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }


def main():
    args = options(width=64)
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=args.width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * args.width,
        max_position_embeddings=64,
    )
    transformers.set_seed(0)
    with tempfile.TemporaryDirectory() as out:
        trainer = transformers.Trainer(
            model=transformers.BertForSequenceClassification(config),
            args=transformers.TrainingArguments(
                output_dir=out,
                num_train_epochs=1,
                per_device_train_batch_size=8,
                per_device_eval_batch_size=8,
                dataloader_num_workers=args.workers,
                eval_strategy="epoch",
                save_strategy="no",
                logging_steps=100,
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=Sentences(args.data, 8 * args.steps),
            eval_dataset=Sentences(args.data, 80),
            data_collator=padded,
        )
        trainer.train()
    print(f"done: {trainer.state.global_step} steps")


if __name__ == "__main__":
    main()
