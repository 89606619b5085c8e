"""Learn to read handwritten digits with three processes and jax.distributed.

The images are scikit-learn's copy of the UCI handwritten digits: 1797 scans of 8 x 8 pixels, part of that package, so
that nothing is downloaded. Each process holds its own share of the training images; in each step ``psum`` adds up the
gradients of all of them (gloo between CPUs, NCCL between GPUs). The job fails when fewer than ``--target`` of the
images that nobody trained on are read right.

JAX does not read the operator's variables by itself: COORDINATOR_ADDRESS, COORDINATOR_PORT, NUM_PROCESSES and
PROCESS_ID are passed on. By hand, with one process: ``python examples/jax/digits.py``.
"""

import argparse
import os
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

RATE, MOMENTUM = 0.2, 0.9


def join() -> None:
    """Meet the other processes, if the operator tells of any."""
    if "COORDINATOR_ADDRESS" in os.environ:
        jax.distributed.initialize(
            f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
            num_processes=int(os.environ["NUM_PROCESSES"]),
            process_id=int(os.environ["PROCESS_ID"]),
            cluster_detection_method="deactivate",  # else JAX asks every pod of a cluster for the package jax[k8s]
        )


def network(pixels: int, hidden: int, digits: int) -> dict[str, jax.Array]:
    first, second = jax.random.split(jax.random.key(0))
    return {
        "hidden": jax.random.normal(first, (pixels, hidden)) * (2 / pixels) ** 0.5,
        "hidden bias": jnp.zeros(hidden),
        "out": jax.random.normal(second, (hidden, digits)) * (2 / hidden) ** 0.5,
        "out bias": jnp.zeros(digits),
    }


def scores(weights: dict[str, jax.Array], pixels: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(pixels @ weights["hidden"] + weights["hidden bias"])
    return hidden @ weights["out"] + weights["out bias"]


def loss(weights: dict[str, jax.Array], pixels: jax.Array, labels: jax.Array) -> jax.Array:
    """The summed cross-entropy of some images."""
    log_probabilities = jax.nn.log_softmax(scores(weights, pixels))
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=1).sum()


def main() -> int:
    parser = argparse.ArgumentParser(description="Distributed training on scikit-learn's digits.")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    join()
    rank, processes = jax.process_index(), jax.process_count()
    mesh = jax.make_mesh((jax.device_count(),), ("all",))
    everywhere, shared_out = NamedSharding(mesh, P()), NamedSharding(mesh, P("all"))
    over_all = partial(jax.shard_map, mesh=mesh, check_vma=False)

    # What the processes have in common: each brings its number, and psum adds them up across all devices.
    numbers = jax.make_array_from_process_local_data(
        shared_out, np.full(jax.local_device_count(), rank + 1.0)
    )
    total = jax.jit(over_all(lambda x: jax.lax.psum(x, "all"), in_specs=P("all"), out_specs=P()))(numbers)
    print(f"process {rank} of {processes}: the sum over all devices is {float(total[0]):.0f}", flush=True)

    data = load_digits()
    train_x, held_out_x, train_y, held_out_y = train_test_split(
        data.data.astype(np.float32) / 16, data.target, test_size=0.2, random_state=0, stratify=data.target
    )
    most = len(train_x) // jax.device_count() * jax.local_device_count()  # the same number for every device
    pixels, labels = (
        jax.make_array_from_process_local_data(shared_out, part[rank::processes][:most])
        for part in (train_x, train_y)
    )

    @jax.jit
    @partial(over_all, in_specs=(P(), P(), P("all"), P("all")), out_specs=P())
    def step(weights, velocity, pixels, labels):
        """One step of gradient descent; here ``pixels`` and ``labels`` are the share of one device."""
        share, slope = jax.value_and_grad(loss)(weights, pixels, labels)
        images = jax.lax.psum(len(labels), "all")
        share, slope = jax.tree.map(lambda part: jax.lax.psum(part, "all") / images, (share, slope))
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v - RATE * g, velocity, slope)
        return jax.tree.map(jnp.add, weights, velocity), velocity, share

    weights = jax.device_put(network(pixels.shape[1], 128, 10), everywhere)
    velocity = jax.tree.map(jnp.zeros_like, weights)
    started = time.monotonic()
    for count in range(1, args.steps + 1):
        weights, velocity, mean = step(weights, velocity, pixels, labels)
        if count % 50 == 0:
            print(f"step {count}/{args.steps} loss {float(mean):.4f}", flush=True)
    seconds = time.monotonic() - started

    reached = float(
        (np.asarray(scores(jax.device_get(weights), held_out_x)).argmax(axis=1) == held_out_y).mean()
    )
    if rank == 0:
        print(
            f"accuracy {reached:.4f} on {len(held_out_y)} held-out images (target {args.target}), "
            f"trained on {len(pixels)} images in {seconds:.1f} s by {processes} processes",
            flush=True,
        )
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
