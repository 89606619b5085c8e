"""The progress of running jobs: read from their pods, and judged by ``controller.policy.hangs``."""

from controller.reconcile.progress.monitor import ProgressMonitor, ProgressState

__all__ = ["ProgressMonitor", "ProgressState"]
