"""Learn to read handwritten digits with four processes, gradients averaged by MPI.Allreduce, as Horovod does it.

The images are scikit-learn's copy of the UCI handwritten digits: 1797 scans of 8 x 8 pixels, part of that package, so
that nothing is downloaded. Each process has its own share of the training images and its own copy of the network, of
which rank 0 hands out the first; the gradients of all of them, averaged, are what each takes a step with. After each
epoch every process compares its weights with the others': a copy that goes astray fails the job, and so do fewer right
answers than ``--target`` on images that nobody trained on.

By hand: ``mpirun -n 4 python -m mpi4py examples/mpi/digits.py``. With ``-m mpi4py`` an error of one process ends all.
"""

import argparse
import sys
import time

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Array = NDArray[np.float64]
RATE, MOMENTUM = 0.2, 0.9
HIDDEN, DIGITS = 128, 10


class Network:
    """One hidden layer. The weights are parts of one array, and so are the gradients: one Allreduce takes them all."""

    def __init__(self, pixels: int) -> None:
        shapes = [(pixels, HIDDEN), (HIDDEN,), (HIDDEN, DIGITS), (DIGITS,)]
        self.ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        self.shapes = shapes
        self.weights = np.zeros(self.ends[-1])

    def parts(self, flat: Array) -> list[Array]:
        return [
            part.reshape(shape)
            for part, shape in zip(np.split(flat, self.ends[:-1]), self.shapes, strict=True)
        ]

    def initialize(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        for part in self.parts(self.weights)[::2]:
            part[:] = random.normal(0, (2 / len(part)) ** 0.5, part.shape)

    def scores(self, pixels: Array) -> tuple[Array, Array]:
        """What the hidden layer says, and the score of each digit."""
        first, bias, second, last_bias = self.parts(self.weights)
        hidden = np.maximum(pixels @ first + bias, 0)
        return hidden, hidden @ second + last_bias

    def gradient(self, pixels: Array, labels: NDArray[np.int64]) -> tuple[float, Array]:
        """The mean cross-entropy of some images, and its gradient."""
        hidden, scores = self.scores(pixels)
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(likely[rows, labels]).mean())
        likely[rows, labels] -= 1
        likely /= len(labels)
        back = likely @ self.parts(self.weights)[2].T * (hidden > 0)
        return loss, np.concatenate(
            [
                gradient.ravel()
                for gradient in (pixels.T @ back, back.sum(axis=0), hidden.T @ likely, likely.sum(axis=0))
            ]
        )


def average(comm: MPI.Comm, mine: Array) -> Array:
    """The mean of what all processes have, the same to the last bit in each."""
    total = np.empty_like(mine)
    comm.Allreduce(mine, total, MPI.SUM)
    return total / comm.size


def is_same_everywhere(comm: MPI.Comm, mine: Array) -> bool:
    least, most = np.empty_like(mine), np.empty_like(mine)
    comm.Allreduce(mine, least, MPI.MIN)
    comm.Allreduce(mine, most, MPI.MAX)
    return np.array_equal(least, most)


def main() -> int:
    parser = argparse.ArgumentParser(description="Distributed training on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    comm = MPI.COMM_WORLD
    hosts = comm.gather(MPI.Get_processor_name())
    # Only rank 0 prints: mpirun may mix the lines of several.
    for rank, host in enumerate(hosts or ()):
        print(f"rank {rank} of {comm.size} runs on {host}", flush=True)
    data = load_digits()
    train_x, held_out_x, train_y, held_out_y = train_test_split(
        data.data / 16, data.target, test_size=0.2, random_state=0, stratify=data.target
    )
    share = len(train_x) // comm.size  # the same number for every process
    pixels, labels = (part[comm.rank :: comm.size][:share] for part in (train_x, train_y))

    network = Network(pixels.shape[1])
    network.initialize(seed=comm.rank)
    comm.Bcast(network.weights)
    velocity = np.zeros_like(network.weights)
    random = np.random.default_rng(comm.rank)
    started = time.monotonic()
    for epoch in range(args.epochs):
        losses = []
        order = random.permutation(share)
        for first in range(0, share, args.batch_size):
            batch = order[first : first + args.batch_size]
            loss, slope = network.gradient(pixels[batch], labels[batch])
            velocity = MOMENTUM * velocity - RATE * average(comm, slope)
            network.weights += velocity
            losses.append(loss)
        if not is_same_everywhere(comm, network.weights):
            print(f"rank {comm.rank} finds weights that differ after epoch {epoch + 1}", flush=True)
            return 1
        if comm.rank == 0:
            print(
                f"epoch {epoch + 1}/{args.epochs} loss {np.mean(losses):.4f}, weights equal on {comm.size} ranks",
                flush=True,
            )

    seconds = time.monotonic() - started
    _, scores = network.scores(held_out_x)
    reached = float((scores.argmax(axis=1) == held_out_y).mean())
    if comm.rank == 0:
        print(
            f"accuracy {reached:.4f} on {len(held_out_y)} held-out images (target {args.target}), "
            f"trained on {share * comm.size} images in {seconds:.1f} s by {comm.size} processes",
            flush=True,
        )
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
