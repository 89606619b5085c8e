"""Go on training when workers come and go: torchrun starts this anew in all of them, and it goes on from its snapshot.

The task is that of digits.py. After each epoch the first process writes model, optimizer and the number of epochs done
into ``--snapshot``, which all workers see. When a worker is lost, torchrun ends what is left of this program, lets the
workers that are there find each other again, with or without a new one, and starts it once more.

Run by hand: ``torchrun examples/pytorch/elastic.py --snapshot /tmp/elastic.pt``.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from digits import accuracy, images, network, train_epoch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epochs_done: int) -> None:
    """Replace the snapshot atomically. If the process is killed meanwhile, the previous snapshot stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epochs_done}, temporary
    )
    temporary.replace(path)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The epochs done so far, with model and optimizer as they were then; 0 without a snapshot."""
    if not path.exists():
        return 0
    snapshot = torch.load(path, weights_only=True)
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    return int(snapshot["epochs"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Elastic training on scikit-learn's digits.")
    parser.add_argument("--snapshot", type=Path, required=True, help="file that all workers see")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds after each epoch, to have time to look on"
    )
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    train, held_out = images()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = load(args.snapshot, model, optimizer)
    start = f"goes on from its snapshot after {begin} epochs" if begin else "begins"
    print(f"rank {rank} of {world_size} {start}", flush=True)

    sampler = DistributedSampler(train, world_size, rank)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    parallel = DistributedDataParallel(model)
    for epoch in range(begin, args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(parallel, loader, optimizer)
        if rank == 0:
            save(args.snapshot, model, optimizer, epoch + 1)
        print(f"epoch {epoch + 1}/{args.epochs} loss {loss:.4f} with {world_size} workers", flush=True)
        time.sleep(args.pause)

    reached = accuracy(model, held_out)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(
            f"accuracy {reached:.4f} on {len(held_out)} held-out images (target {args.target}), "
            f"{args.epochs - begin} of {args.epochs} epochs since the last start",
            flush=True,
        )
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
