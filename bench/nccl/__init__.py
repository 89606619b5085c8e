"""``bench nccl`` and its kin: what collectives reach between GPUs, measured by jobs that the operator runs."""
