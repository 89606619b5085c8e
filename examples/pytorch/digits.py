"""Learn to read handwritten digits with three processes and torch.distributed.

The images are scikit-learn's copy of the UCI handwritten digits: 1797 scans of 8 x 8 pixels, part of that
package, so that nothing is downloaded. Each process trains on its own share of the training images; gloo
averages the gradients. Process 0 counts right answers on images that nobody trained on, and the job fails when
they are fewer than ``--target``.

Run by hand with one process: ``python examples/pytorch/digits.py``. The operator supplies MASTER_ADDR,
MASTER_PORT, RANK and WORLD_SIZE when it runs as a PyTorchJob.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def images() -> tuple[TensorDataset, TensorDataset]:
    """The training images and the held-out images; the same split in every process."""
    data = load_digits()
    split = train_test_split(data.images, data.target, test_size=0.2, random_state=0, stratify=data.target)
    train_x, held_out_x, train_y, held_out_y = (torch.as_tensor(part) for part in split)
    return tensors(train_x, train_y), tensors(held_out_x, held_out_y)


def tensors(pixels: Tensor, labels: Tensor) -> TensorDataset:
    """Pixels scaled from 0..16 to 0..1, with a channel in front."""
    return TensorDataset(pixels.float().unsqueeze(1) / 16, labels.long())


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """One pass over this process' share; returns its mean loss."""
    total = 0.0
    for pixels, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def accuracy(model: nn.Module, dataset: TensorDataset) -> float:
    pixels, labels = dataset.tensors
    return (model(pixels).argmax(dim=1) == labels).float().mean().item()


def main() -> int:
    parser = argparse.ArgumentParser(description="Distributed training on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "23456")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    print(f"rank {rank} of {world_size} is connected to {os.environ['MASTER_ADDR']}", flush=True)

    torch.manual_seed(0)
    train, held_out = images()
    sampler = DistributedSampler(train, world_size, rank)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    started = time.monotonic()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer)
        print(f"epoch {epoch + 1}/{args.epochs} loss {loss:.4f}", flush=True)

    reached = accuracy(model.module, held_out)
    seconds = time.monotonic() - started
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(
            f"accuracy {reached:.4f} on {len(held_out)} held-out images (target {args.target}), "
            f"trained on {len(train)} images in {seconds:.1f} s by {world_size} processes",
            flush=True,
        )
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
