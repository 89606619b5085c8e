"""Whether a failed pod is replaced, kept, or ends the job.

Source: training-operator 1.9, pkg/controller.v1/common/pod.go, ReconcilePods, and pkg/util/train/train_util.go.
"""

from enum import Enum, auto

from api.children import Pod
from api.job import RestartPolicy

RETRYABLE_FROM = 128
"""Exit codes of 128 and more are signals and worth another try; 0 to 127 are the program's own word."""


class Reaction(Enum):
    KEEP = auto()
    REPLACE = auto()
    FAIL = auto()


def reaction(restart_policy: str, pod: Pod, container: str) -> Reaction:
    """What one pod calls for. ``container`` is the one whose exit code counts.

    A failed pod whose container never ended by itself (evicted, node lost, init container failed) counts as worth another try.
    """
    if pod.phase != "Failed":
        return Reaction.KEEP
    if restart_policy in {RestartPolicy.ON_FAILURE, RestartPolicy.ALWAYS}:
        return Reaction.REPLACE
    if restart_policy != RestartPolicy.EXIT_CODE:
        return Reaction.KEEP
    done = pod.exit_of(container)
    return Reaction.FAIL if done and done.code < RETRYABLE_FROM else Reaction.REPLACE
