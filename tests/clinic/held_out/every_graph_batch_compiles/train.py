"""Train a graph network in JAX to predict the energy of molecules."""

import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from torch.utils.data import DataLoader, Dataset

ELEMENTS = 8
Parameters = dict[str, jax.Array]


class Graphs(NamedTuple):
    """Molecules joined into one graph. Atoms of padding belong to an extra molecule, the last one."""

    elements: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    molecules: np.ndarray
    energies: np.ndarray


class Molecules(Dataset[Graphs]):
    """Random molecules of different sizes, each as a graph of its own."""

    def __init__(self, count: int, largest: int) -> None:
        self.sizes = np.random.default_rng(0).integers(5, largest, count)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Graphs:
        rng = np.random.default_rng(index)
        size = int(self.sizes[index])
        elements = rng.integers(0, ELEMENTS, size)
        places = rng.random((size, 3)) * size ** (1 / 3)
        distances = np.linalg.norm(places[:, None] - places[None], axis=2)
        sources, targets = np.nonzero((distances < 1.5) & (distances > 0))
        energy = np.array([elements.mean() / ELEMENTS + len(sources) / 1000])
        return Graphs(elements, sources, targets, np.zeros(size, int), energy)


def join(graphs: list[Graphs]) -> Graphs:
    sizes = [len(graph.elements) for graph in graphs]
    offsets = np.cumsum([0, *sizes[:-1]])
    return Graphs(
        np.concatenate([graph.elements for graph in graphs]),
        np.concatenate([graph.sources + offset for graph, offset in zip(graphs, offsets)]),
        np.concatenate([graph.targets + offset for graph, offset in zip(graphs, offsets)]),
        np.repeat(np.arange(len(graphs)), sizes),
        np.concatenate([graph.energies for graph in graphs]).astype(np.float32),
    )


def round_up(size: int, multiple: int) -> int:
    return (size // multiple + 1) * multiple


def pad(graphs: Graphs, atoms: int, bonds: int) -> Graphs:
    """Add atoms and bonds of padding, up to multiples of these numbers."""
    real = len(graphs.elements)
    more_atoms = round_up(real, atoms) - real
    more_bonds = round_up(len(graphs.sources), bonds) - len(graphs.sources)
    return Graphs(
        np.pad(graphs.elements, (0, more_atoms)),
        np.pad(graphs.sources, (0, more_bonds), constant_values=real),
        np.pad(graphs.targets, (0, more_bonds), constant_values=real),
        np.pad(graphs.molecules, (0, more_atoms), constant_values=len(graphs.energies)),
        graphs.energies,
    )


def collate(graphs: list[Graphs], atoms: int, bonds: int) -> Graphs:
    joined = join(graphs)
    return pad(joined, atoms, bonds) if atoms else joined


def build_parameters(width: int, layers: int) -> Parameters:
    rng = np.random.default_rng(0)

    def weights(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.normal(0, rows**-0.5, (rows, columns)), jnp.float32)

    parameters = {"embed": weights(ELEMENTS, width), "energy": weights(width, 1)}
    for layer in range(layers):
        parameters[f"message{layer}"] = weights(2 * width, width)
        parameters[f"update{layer}"] = weights(2 * width, width)
    return parameters


def predict(parameters: Parameters, graphs: Graphs, layers: int) -> jax.Array:
    atoms = parameters["embed"][graphs.elements]
    for layer in range(layers):
        pairs = jnp.concatenate([atoms[graphs.sources], atoms[graphs.targets]], axis=1)
        messages = jax.nn.silu(pairs @ parameters[f"message{layer}"])
        received = jax.ops.segment_sum(messages, graphs.targets, len(atoms))
        both = jnp.concatenate([atoms, received / 8], axis=1)
        atoms = atoms + jax.nn.silu(both @ parameters[f"update{layer}"])
    count = len(graphs.energies)
    energies = jax.ops.segment_sum(atoms @ parameters["energy"], graphs.molecules, count + 1)
    return energies[:count, 0] / 16


@partial(jax.jit, static_argnames="layers")
def update(parameters: Parameters, graphs: Graphs, layers: int) -> tuple[Parameters, jax.Array]:
    def mean_error(parameters: Parameters) -> jax.Array:
        return jnp.square(predict(parameters, graphs, layers) - graphs.energies).mean()

    loss, gradients = jax.value_and_grad(mean_error)(parameters)
    return jax.tree.map(lambda value, slope: value - 0.01 * slope, parameters, gradients), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pad-atoms", type=int, default=0, help="0: no padding")
    parser.add_argument("--pad-bonds", type=int, default=2048)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()

    loader = DataLoader(
        Molecules(args.steps * args.batch, largest=40),
        args.batch,
        collate_fn=partial(collate, atoms=args.pad_atoms, bonds=args.pad_bonds),
    )
    parameters = build_parameters(args.width, args.layers)
    for step, graphs in enumerate(loader, 1):
        parameters, loss = update(parameters, graphs, args.layers)
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
