"""Learn to read handwritten digits with two trainers and paddle.distributed.

The images are scikit-learn's copy of the UCI handwritten digits: 1797 scans of 8 x 8 pixels, part of that package, so
that nothing is downloaded. Each process trains on its own share of the training images; DataParallel averages the
gradients (gloo between CPUs, NCCL between GPUs). The job fails when fewer than ``--target`` of the images that nobody
trained on are read right.

Paddle's launcher hands out the ranks; it finds the other pods by what the operator supplies. By hand, with one process:
``python examples/paddle/digits.py``.
"""

import argparse
import sys
import time

import numpy as np
import paddle
from paddle import distributed, nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> int:
    parser = argparse.ArgumentParser(description="Distributed training on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    distributed.init_parallel_env()
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    print(f"rank {rank} of {world_size} is connected", flush=True)

    data = load_digits()
    train_x, held_out_x, train_y, held_out_y = train_test_split(
        data.data.astype(np.float32) / 16, data.target, test_size=0.2, random_state=0, stratify=data.target
    )
    train = paddle.io.TensorDataset([paddle.to_tensor(train_x), paddle.to_tensor(train_y)])
    sampler = paddle.io.DistributedBatchSampler(train, args.batch_size, shuffle=True)
    paddle.seed(0)
    network = nn.Sequential(nn.Linear(train_x.shape[1], 128), nn.ReLU(), nn.Linear(128, 10))
    model = paddle.DataParallel(network) if world_size > 1 else network
    optimizer = paddle.optimizer.Adam(learning_rate=5e-3, parameters=model.parameters())

    started = time.monotonic()
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        for pixels, labels in paddle.io.DataLoader(train, batch_sampler=sampler):
            loss = nn.functional.cross_entropy(model(pixels), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        print(f"epoch {epoch}/{args.epochs} loss {float(loss):.4f}", flush=True)
    seconds = time.monotonic() - started

    predicted = network(paddle.to_tensor(held_out_x)).numpy().argmax(axis=1)
    reached = float((predicted == held_out_y).mean())
    if rank == 0:
        print(
            f"accuracy {reached:.4f} on {len(held_out_y)} held-out images (target {args.target}), "
            f"trained on {len(train_x)} images in {seconds:.1f} s by {world_size} processes",
            flush=True,
        )
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
