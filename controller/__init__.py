"""The operator: one process that reconciles every job kind, in a cluster or with the API server of local mode."""
