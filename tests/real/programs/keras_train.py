"""Trains by Keras with its torch backend, on torch's loader."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from images import ImageFiles, options
from torch.utils.data import DataLoader


def main():
    args = options(workers=1)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((3, 64, 64)),
            keras.layers.Permute((2, 3, 1)),
            keras.layers.Conv2D(args.width, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(2 * args.width, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.01), loss=keras.losses.SparseCategoricalCrossentropy()
    )
    loader = DataLoader(
        ImageFiles(args.data, 8 * args.steps), batch_size=8, num_workers=args.workers
    )
    with torch.device("cpu"):
        history = model.fit(loader, epochs=1, verbose=2)
    print(f"done: {int(model.optimizer.iterations)} steps, {len(history.epoch)} epoch")


if __name__ == "__main__":
    main()
