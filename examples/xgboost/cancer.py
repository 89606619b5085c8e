"""Tell malignant from benign tumours: three processes grow one model together with XGBoost.

The data are scikit-learn's copy of the Wisconsin breast cancer data: 569 tumours with 30 measures each, part of that
package, so that nothing is downloaded. Each process holds its own share of the training rows; XGBoost's collective adds
up the statistics from which all of them pick the same splits. The job fails when fewer than ``--target`` of the
tumours that nobody trained on are told right.

XGBoost does not read the operator's variables by itself: the master starts the tracker at MASTER_ADDR and MASTER_PORT,
and everybody joins it there under their RANK. By hand, with one process: ``python examples/xgboost/cancer.py``.
"""

import argparse
import os
import socket
import sys
import time

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from xgboost import collective
from xgboost.tracker import RabitTracker

PARAMETERS = {
    "objective": "binary:logistic",
    "eval_metric": "logloss",
    "max_depth": 3,
    "nthread": 1,
    "seed": 0,
}
RETRIES = 30
"""How often a worker asks for the tracker: after 2, 4, 6, ... seconds, a quarter of an hour in all."""


def resolved(host: str) -> str:
    """The address of a pod, whose name is known a moment after it runs."""
    while True:
        try:
            return socket.gethostbyname(host)
        except OSError:
            time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description="Distributed training on scikit-learn's breast cancer data.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--target", type=float, default=0.93, help="least accuracy on the held-out tumours")
    args = parser.parse_args()

    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    address = resolved(os.environ.get("MASTER_ADDR", "127.0.0.1"))
    port = int(os.environ.get("MASTER_PORT", "0"))  # 0: any that is free
    if rank == 0:
        tracker = RabitTracker(n_workers=world_size, host_ip=address, port=port, sortby="task")
        tracker.start()
        tracker_address = tracker.worker_args()
    else:
        tracker_address = {"dmlc_tracker_uri": address, "dmlc_tracker_port": port}

    rows, labels = load_breast_cancer(return_X_y=True)
    train_x, held_out_x, train_y, held_out_y = train_test_split(
        rows, labels, test_size=0.2, random_state=0, stratify=labels
    )
    with collective.CommunicatorContext(**tracker_address, dmlc_task_id=str(rank), dmlc_retry=RETRIES):
        share = xgboost.DMatrix(train_x[rank::world_size], train_y[rank::world_size])
        print(f"rank {rank} of {world_size} has {share.num_row()} of {len(train_x)} tumours", flush=True)
        started = time.monotonic()
        model = xgboost.train(PARAMETERS, share, args.rounds, evals=[(share, "train")], verbose_eval=10)
        seconds = time.monotonic() - started

    reached = float(((model.predict(xgboost.DMatrix(held_out_x)) > 0.5) == held_out_y).mean())
    if rank == 0:
        tracker.wait_for()
        print(
            f"accuracy {reached:.4f} on {len(held_out_y)} held-out tumours (target {args.target}), "
            f"trained on {len(train_x)} tumours in {seconds:.1f} s by {world_size} processes",
            flush=True,
        )
    return 0 if reached >= args.target else 1


if __name__ == "__main__":
    sys.exit(main())
