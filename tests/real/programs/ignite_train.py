"""Trains and evaluates by Ignite's engines."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Loss
from images import ImageFiles, network, options
from torch.utils.data import DataLoader


def main():
    args = options(workers=1)
    torch.manual_seed(0)
    model = network(args.width)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trainer = create_supervised_trainer(model, optimizer, criterion)
    evaluator = create_supervised_evaluator(model, {"loss": Loss(criterion)})
    train = DataLoader(
        ImageFiles(args.data, 8 * (args.steps // 3)),
        batch_size=8,
        shuffle=True,
        num_workers=args.workers,
    )
    valid = DataLoader(ImageFiles(args.data, 64), batch_size=8)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        evaluator.run(valid)
        print(f"epoch {engine.state.epoch} loss {evaluator.state.metrics['loss']:.4f}")

    trainer.run(train, max_epochs=3)
    print(f"done: {trainer.state.iteration} steps")


if __name__ == "__main__":
    main()
