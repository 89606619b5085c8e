"""Learn to read handwritten digits with a chief, two workers and a parameter server.

The images are scikit-learn's copy of the UCI handwritten digits: 1797 scans of 8 x 8 pixels, part of that package, so
that nothing is downloaded. The parameter server holds the variables; the chief hands out steps, and each worker takes
one when it is free, reads the variables, and sends its gradients. Workers do not wait for each other. The job fails
when fewer than ``--target`` of the images that nobody trained on are read right.

TensorFlow finds the others in TF_CONFIG, which the operator supplies. Workers and parameter servers serve until they
are ended: with ``cleanPodPolicy: Running`` the operator does that when the chief is done.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

RATE = 0.2


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """What workers and parameter servers do; never ends."""
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
    server.join()


def network(pixels: int, hidden: int, digits: int) -> list[tf.Variable]:
    random = tf.random.Generator.from_seed(0)
    return [
        tf.Variable(random.normal((pixels, hidden), stddev=(2 / pixels) ** 0.5)),
        tf.Variable(tf.zeros(hidden)),
        tf.Variable(random.normal((hidden, digits), stddev=(2 / hidden) ** 0.5)),
        tf.Variable(tf.zeros(digits)),
    ]


def scores(weights: list[tf.Tensor], pixels: tf.Tensor) -> tf.Tensor:
    hidden, hidden_bias, out, out_bias = weights
    return tf.nn.relu(pixels @ hidden + hidden_bias) @ out + out_bias


def lead(args: argparse.Namespace, resolver: tf.distribute.cluster_resolver.ClusterResolver) -> int:
    """What the chief does: train, by means of the workers."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = resolver.cluster_spec().num_tasks("worker")

    data = load_digits()
    train_x, held_out_x, train_y, held_out_y = train_test_split(
        data.data.astype(np.float32) / 16, data.target, test_size=0.2, random_state=0, stratify=data.target
    )
    with strategy.scope():
        weights = network(train_x.shape[1], 128, 10)

    def batches() -> tf.data.Dataset:
        """Made on each worker, in an order of its own."""
        images = tf.data.Dataset.from_tensor_slices((train_x, train_y))
        return images.shuffle(len(train_x)).repeat().batch(args.batch_size)

    @tf.function
    def step(batch: tf.data.Iterator) -> tf.Tensor:
        pixels, labels = next(batch)
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores(weights, pixels))
            loss = tf.reduce_mean(losses)
        for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(RATE * slope)
        return loss

    own = iter(coordinator.create_per_worker_dataset(batches))
    started = time.monotonic()
    for done in range(0, args.steps, 100):
        losses = [coordinator.schedule(step, args=(own,)) for _ in range(min(100, args.steps - done))]
        coordinator.join()
        mean = float(np.mean([loss.fetch() for loss in losses]))
        print(f"step {done + len(losses)}/{args.steps} loss {mean:.4f}", flush=True)
    seconds = time.monotonic() - started

    predicted = scores([weight.read_value() for weight in weights], held_out_x).numpy().argmax(axis=1)
    reached = float((predicted == held_out_y).mean())
    print(
        f"accuracy {reached:.4f} on {len(held_out_y)} held-out images (target {args.target}), "
        f"trained on {len(train_x)} images in {seconds:.1f} s by {workers} workers",
        flush=True,
    )
    return 0 if reached >= args.target else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Training with a parameter server on scikit-learn's digits.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step of one worker")
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        serve(resolver)
    return lead(args, resolver)


if __name__ == "__main__":
    sys.exit(main())
