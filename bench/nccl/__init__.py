"""``bench nccl`` and related subcommands: bandwidth of collectives between GPUs, measured by jobs of the operator."""
