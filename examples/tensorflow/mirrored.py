"""Learn to read handwritten digits with three workers and MultiWorkerMirroredStrategy.

The images are scikit-learn's copy of the UCI handwritten digits: 1797 scans of 8 x 8 pixels, part of that package, so
that nothing is downloaded. Each worker trains on its own share of every batch; the strategy adds up the gradients and
keeps the variables of all workers alike. The job fails when fewer than ``--target`` of the images that nobody trained
on are read right.

TensorFlow finds the other workers in TF_CONFIG, which the operator supplies. By hand, with one process:
``python examples/tensorflow/mirrored.py``.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

RATE, MOMENTUM = 0.1, 0.9


class Network(tf.Module):
    """Two layers; gradient descent with momentum."""

    def __init__(self, pixels: int, hidden: int, digits: int) -> None:
        super().__init__()
        random = tf.random.Generator.from_seed(0)
        starts = [
            random.normal((pixels, hidden), stddev=(2 / pixels) ** 0.5),
            tf.zeros(hidden),
            random.normal((hidden, digits), stddev=(2 / hidden) ** 0.5),
            tf.zeros(digits),
        ]
        self.weights = [tf.Variable(start) for start in starts]
        self.velocity = [tf.Variable(tf.zeros_like(start)) for start in starts]

    def scores(self, pixels: tf.Tensor) -> tf.Tensor:
        hidden, hidden_bias, out, out_bias = self.weights
        return tf.nn.relu(pixels @ hidden + hidden_bias) @ out + out_bias

    def descend(self, slopes: list[tf.Tensor]) -> None:
        for weight, velocity, slope in zip(self.weights, self.velocity, slopes, strict=True):
            velocity.assign(MOMENTUM * velocity - RATE * slope)
            weight.assign_add(velocity)


def main() -> int:
    parser = argparse.ArgumentParser(description="Distributed training on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=96, help="images per step, of all workers together")
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    # Before anything else: it starts the server that the other workers connect to.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    rank, workers = resolver.task_id or 0, strategy.num_replicas_in_sync
    print(f"worker {rank} of {workers} is connected", flush=True)

    data = load_digits()
    train_x, held_out_x, train_y, held_out_y = train_test_split(
        data.data.astype(np.float32) / 16, data.target, test_size=0.2, random_state=0, stratify=data.target
    )
    batches = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shuffle(len(train_x), seed=0)
    batches = batches.batch(args.batch_size, drop_remainder=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    shares = strategy.experimental_distribute_dataset(batches.with_options(options))
    with strategy.scope():
        model = Network(train_x.shape[1], 128, 10)

    def step(pixels: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """On each worker, with its share of a batch."""
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model.scores(pixels))
            loss = tf.reduce_sum(losses) / args.batch_size
        slopes = tape.gradient(loss, model.weights)
        context = tf.distribute.get_replica_context()
        model.descend(context.all_reduce(tf.distribute.ReduceOp.SUM, slopes))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, loss)

    train = tf.function(lambda share: strategy.run(step, args=share))
    started = time.monotonic()
    for epoch in range(1, args.epochs + 1):
        for share in shares:
            loss = train(share)
        print(f"epoch {epoch}/{args.epochs} loss {float(loss):.4f}", flush=True)
    seconds = time.monotonic() - started

    reached = float((model.scores(held_out_x).numpy().argmax(axis=1) == held_out_y).mean())
    if rank == 0:
        print(
            f"accuracy {reached:.4f} on {len(held_out_y)} held-out images (target {args.target}), "
            f"trained on {len(train_x)} images in {seconds:.1f} s by {workers} workers",
            flush=True,
        )
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
