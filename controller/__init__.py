"""The operator: one service that reconciles every job kind, in a cluster or beside the embedded API server."""
