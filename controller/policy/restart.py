"""Whether a failed pod is replaced, stays, or ends the job.

Source: training-operator 1.9, pkg/controller.v1/common/pod.go, ReconcilePods, and pkg/util/train/train_util.go.
"""

from enum import Enum, auto

from api.children import Pod
from api.job import RestartPolicy

RETRYABLE_FROM = 128
"""Exit codes from 128 on come from signals and are retryable; 1 to 127 come from the program and are permanent."""


class Reaction(Enum):
    KEEP = auto()
    REPLACE = auto()
    FAIL = auto()


def reaction(restart_policy: str, pod: Pod, container: str) -> Reaction:
    """Return the action for one pod. ``container`` is the one whose exit code counts.

    A failed pod counts as retryable if its container never ended by itself (eviction, lost node, failed init container).
    """
    if pod.phase != "Failed":
        return Reaction.KEEP
    if restart_policy in {RestartPolicy.ON_FAILURE, RestartPolicy.ALWAYS}:
        return Reaction.REPLACE
    if restart_policy != RestartPolicy.EXIT_CODE:
        return Reaction.KEEP
    done = pod.exit_of(container)
    return Reaction.FAIL if done and done.code < RETRYABLE_FROM else Reaction.REPLACE
