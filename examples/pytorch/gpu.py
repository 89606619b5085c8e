"""The task of digits.py on GPUs: one process a pod, one GPU each, gradients averaged by NCCL.

A pod sees no GPU but its own, so that is always the first one.
"""

import os
import sys

import torch
import torch.distributed as dist
from digits import accuracy, images, network, train_epoch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH_SIZE, TARGET = 12, 32, 0.95


def share(whole: TensorDataset, rank: int, world_size: int) -> TensorDataset:
    """This process' images, on its GPU; as many for each process, since all take part in each step."""
    count = len(whole) // world_size
    places = slice(rank, count * world_size, world_size)
    return TensorDataset(*(tensor[places].cuda() for tensor in whole.tensors))


def main() -> int:
    if not torch.cuda.is_available():
        print("there is no GPU for this process", flush=True)
        return 1
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    print(f"rank {rank} of {world_size} has {torch.cuda.get_device_name(0)} ({visible})", flush=True)

    torch.manual_seed(0)
    train, held_out = images()
    loader = DataLoader(share(train, rank, world_size), batch_size=BATCH_SIZE, shuffle=True)
    model = DistributedDataParallel(network().cuda(), device_ids=[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        loss = train_epoch(model, loader, optimizer)
        print(f"epoch {epoch + 1}/{EPOCHS} loss {loss:.4f}", flush=True)

    reached = accuracy(model.module, share(held_out, 0, 1))
    dist.destroy_process_group()
    if rank == 0:
        print(f"accuracy {reached:.4f} on {len(held_out)} held-out images (target {TARGET})", flush=True)
    return 0 if reached >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
