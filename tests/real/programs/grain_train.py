"""Trains a JAX model on image files by Grain's loader."""

import grain.python as grain
import jax
import jax.numpy as jnp
from images import ImageFiles, options


def loss_of(weights, images, labels):
    hidden = jax.nn.relu(images.reshape(images.shape[0], -1) @ weights["in"])
    logits = jax.nn.log_softmax(hidden @ weights["out"])
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))


@jax.jit
def train_step(weights, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients), loss


def main():
    args = options(width=256)
    data = ImageFiles(args.data, 8 * args.steps)
    loader = grain.DataLoader(
        data_source=data,
        sampler=grain.IndexSampler(
            num_records=len(data), num_epochs=1, shuffle=True, seed=0,
            shard_options=grain.NoSharding(),
        ),
        operations=[grain.Batch(8, drop_remainder=True)],
        worker_count=args.workers,
    )  # fmt: skip
    keys = jax.random.split(jax.random.key(0))
    weights = {
        "in": 0.01 * jax.random.normal(keys[0], (3 * 64 * 64, args.width)),
        "out": 0.01 * jax.random.normal(keys[1], (args.width, 10)),
    }
    for step, (images, labels) in enumerate(loader, 1):
        weights, loss = train_step(weights, images, labels)
        loss.block_until_ready()
        if step % 100 == 0:
            print(f"step {step} loss {float(loss):.4f}")
    print(f"done: {step} steps")


if __name__ == "__main__":
    main()
