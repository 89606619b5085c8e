"""Resume from the newest checkpoint: a job that restarts as a whole ends with the same weights as one that never failed.

The task is that of digits.py. Every ``--every`` steps the first process replaces the checkpoint in the folder that
RALLYPOINT_CHECKPOINT_DIR names, which all processes see. After a restart each of them loads it and goes on with the next
step. Which images a step uses depends on its number alone, so nothing is trained on twice or left out.

Run by hand with one process: ``RALLYPOINT_CHECKPOINT_DIR=/tmp/digits python examples/pytorch/resume.py``.
"""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from digits import accuracy, images, network
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Replace the checkpoint atomically: if the process is killed meanwhile, the previous one stays."""
    temporary = path.with_suffix(".new")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, temporary)
    temporary.replace(path)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The steps done so far, with model and optimizer as they were then; 0 without a checkpoint."""
    if not path.exists():
        return 0
    checkpoint = torch.load(path, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return int(checkpoint["step"])


def digest(model: nn.Module) -> str:
    """The SHA-256 of all weights, which one different bit changes."""
    found = hashlib.sha256()
    for weights in model.state_dict().values():
        found.update(weights.numpy().tobytes())
    return found.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Training on scikit-learn's digits that resumes.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds after each step, to have time to look on"
    )
    parser.add_argument(
        "--steps-file", type=Path, help="file that gets a line for each step: attempt and step"
    )
    parser.add_argument("--target", type=float, default=0.95, help="least accuracy on the held-out images")
    args = parser.parse_args()

    attempt = os.environ.get("RALLYPOINT_RESTART_ATTEMPT", "0")
    folder = Path(os.environ["RALLYPOINT_CHECKPOINT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "23456")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(mode=True)
    train, held_out = images()
    sampler = DistributedSampler(train, world_size, rank)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = load(folder / "digits.pt", model, optimizer)
    # Otherwise DDP orders the gradients anew after its first step, and sums of floats depend on their order: a run that
    # resumes would differ in the last bits.
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    print(f"rank {rank} of {world_size}, attempt {attempt}: begins after step {begin}", flush=True)

    for epoch in range(begin // len(loader), args.epochs):
        sampler.set_epoch(epoch)
        for step, (pixels, labels) in enumerate(loader, epoch * len(loader) + 1):
            if step <= begin:
                continue
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(pixels), labels)
            loss.backward()
            optimizer.step()
            if rank == 0:
                if args.steps_file:
                    with args.steps_file.open("a") as steps:
                        steps.write(f"{attempt} {step}\n")
                if step % args.every == 0:
                    save(folder / "digits.pt", model, optimizer, step)
                    print(f"checkpoint after step {step}, loss {loss.item():.4f}", flush=True)
            time.sleep(args.pause)

    reached = accuracy(model, held_out)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(f"weights {digest(model)}", flush=True)
        print(f"accuracy {reached:.4f} on {len(held_out)} held-out images (target {args.target})", flush=True)
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
