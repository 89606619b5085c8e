"""The worker: join the other ranks, run the task, report the results."""

import argparse
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from bench.nccl.worker.messages import emit
from bench.nccl.worker.rank_info import read_rank_info


def main(started: float) -> None:
    """Run the worker; ``started`` is when the process started, in seconds since 1970."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Path)
    parser.add_argument(
        "--master",
        default="",
        metavar="HOST:PORT",
        help="address of rank 0, if no environment variable contains it",
    )
    args = parser.parse_args()
    task = json.loads(args.task.read_text())
    if args.master:
        os.environ["MASTER_ADDR"], _, os.environ["MASTER_PORT"] = args.master.rpartition(":")
    try:
        _work(task, {"process": started})
    except Exception as error:
        emit("error", rank=int(os.environ.get("RANK", "-1")), why=f"{type(error).__name__}: {error}"[:2000])
        raise


def _work(task: dict[str, Any], timestamps: dict[str, float]) -> None:
    rank_info = read_rank_info(os.environ)
    # The starter may use other variables.
    os.environ.update(RANK=str(rank_info.rank), WORLD_SIZE=str(rank_info.ranks))
    # torchrun sets this for several ranks per node, mpirun never: set it for both.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Imported here because torch takes seconds to import, which is a step of its own.
    import torch.distributed as dist

    timestamps["torch"] = time.time()
    from bench.nccl.worker import facts, pairs, sweep, train
    from bench.nccl.worker.group import join

    group = join(task["backend"], rank_info, share_gpu=task["share_gpu"], timestamps=timestamps)
    where = {
        "rank": rank_info.rank,
        "local_rank": rank_info.local_rank,
        "host": socket.gethostname(),
        "gpu": group.gpu,
    }
    about = facts.facts(task["backend"]) if rank_info.local_rank == 0 else {}
    others = group.all_gather(where | {"facts": about})
    if rank_info.rank == 0:
        emit("world", ranks=rank_info.ranks, shared_gpu=group.shared_gpu, timestamps=timestamps)
        for node in facts.group_identical(others):
            emit("node", **node)
        for rank_facts in others:
            emit("rank", **{name: rank_facts[name] for name in where})
    for part, run in (("sizes", sweep.run), ("pair_bytes", pairs.run), ("model", train.run)):
        if task.get(part):
            run(task, group)
    group.barrier()
    if rank_info.rank == 0:
        emit("end")
    dist.destroy_process_group()
