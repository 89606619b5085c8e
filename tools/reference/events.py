"""The page of events and conditions: the reasons that the code declares, with their docstrings."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from controller.crds.descriptions import attribute_docstrings, plain
from controller.kind.defaults import KindDefaults
from controller.kind.idle import IdleReason
from controller.kind.reasons import ConditionReason, EventReason
from controller.reconcile.events import MOST_CHILD_EVENTS
from controller.runtime.recorder import BUSY_WAITING
from tools.markdown import cell, code, table

HEAD = f"""\
# Events and conditions

<!-- Made by `make docs` from controller/kind/reasons.py, controller/kind/idle.py and tools/reference/events.py; edit those instead. -->

Names, reasons, messages and types of events are those of the Go operators, so dashboards and alerts keep matching; events of failures stay of type Normal where the original's are. What differs is when and how often they are recorded.

| event | how often |
|---|---|
| state of the job: created, running, restarting, suspended, resumed, succeeded, failed, invalid, blocked | once per change; never combined, never limited |
| created children | one each for the first {MOST_CHILD_EVENTS} of a job, then one summary under the reason of the first of them ("Created 139 services and 138 pods: train-worker-11, …"): at most {MOST_CHILD_EVENTS + 2} events for a job that succeeds. While {BUSY_WAITING} such events or more wait to be sent, only pods have one each, and the summary has the Services and all else |
| what a gang waits for (`…WaitingForGang`) | once it has waited for 30 s, and again when its message differs in more than numbers; limited per job, see below |
| `ExitedWithCode` | once per pod, for exit codes other than 0 |
| reports of pods and failed API calls | once per pod; combined and limited per job, see below. A text that differs only in its numbers ("back-off 2m40s" after "back-off 1m20s") is the same report |

An event that repeats an earlier one increases its count. Messages are cut at 1,024 characters.

`--events=compact` summarizes children from the start, with one event per reason and reconcile: two in the life of a job that succeeds, whatever its size. `--events=off` records none.

## Reasons of conditions

A reason begins with the kind: `<Kind>Created` is `PyTorchJobCreated`. [Run policy](run-policy.md#conditions) and, for v2beta1, [MPIJob](mpijob.md#status) say when a condition becomes true.
"""

IDLE = """
While a job does not run, Running is False with one of these reasons, once the operator knows why. The message names the cause. A job that has run before, and was suspended and resumed, has the second form.
"""

BATCH = """
MPIJobs of v2beta1 and v1alpha2 fail with the reason of the launcher's batch Job instead: `BackoffLimitExceeded`, followed by `/` and the reason of the pod if it has one, such as `BackoffLimitExceeded/Evicted`; `DeadlineExceeded`; or another one of that Job. MPIJobs of v1 fail with `MPIJobMPIJobFailed`, as in training-operator.

## Reasons of events

Events that report a change of a condition have the reason of the condition, see above. These are the others:
"""

KIND = "<Kind>"
PREFIXES = {
    EventReason.LEFT_TO_ANOTHER: KIND,
    EventReason.PROGRESS_UNKNOWN: KIND,
    EventReason.POD_TEMPLATE_RESTART_POLICY: KindDefaults.settings_word,
    EventReason.POD_TEMPLATE_SCHEDULER_NAME: KindDefaults.settings_word,
}
"""What precedes a reason in events."""

CHILDREN = (
    ("`Successful<Create or Delete><Kind of child>`", "Normal: a child was created or deleted, such as `SuccessfulCreatePod`. MPIJobs of v2beta1 and v1alpha2 have none."),
    ("`Failed<Create, Update or Delete><Kind of child>`", "Warning: the API server refused to create, change or delete a child. The message is its own. `MPIJobFailed` for pods and launchers of v2beta1 MPIJobs."),
    ("`SuccessfulDeleteJob`, `FailedDeleteJob`", "Normal, Warning: the job was deleted after `ttlSecondsAfterFinished`, or could not be. `SuccessfulDeletePod`, `FailedDeletePod` for PyTorchJobs, PaddleJobs and JAXJobs, as in training-operator."),
    ("the reason in the pod's status", "Warning: a container of a pod waits or has failed (`ImagePullBackOff`, `CrashLoopBackOff`, `OOMKilled`, `Error`), or a scheduler finds no node (`Unschedulable`)."),
    ("`LeaderElection`", "Normal, on the Lease: a replica became leader."),
)  # fmt: skip
"""Events whose reason depends on an object, and what they mean."""

TAIL = """
## Limits per job

The limits have the numbers of client-go:

- **Combined.** Reports of one job, type and reason are similar if they name the same container and their texts differ only in words with a digit: indices, durations, quantities, hashes, addresses. The first 9 similar reports get an event each. Later ones share one event with a count: `(combined from similar events): ` and the newest message. After 10 minutes without a similar report this starts again.
- **Limited.** Each job has 25 writes of reports and regains one every 5 minutes. A report above the limit is not written but counted: the next write of that event has the true count. `rallypoint_events_limited_total` counts reports that were held back, `rallypoint_events_dropped_total` events that were lost.

For a pod that no node accepts, the event has the scheduler's first message. `rallypoint why` and `kubectl describe pod` show the newest one.

The operator creates no children and no events in a namespace that is being deleted.
"""


def page() -> str:
    return "".join(
        (
            HEAD,
            *table(("reason", "meaning"), _reasons(ConditionReason, dict.fromkeys(ConditionReason, KIND))),
            IDLE,
            *table(("reason", "after a resume", "meaning"), _idle_reasons()),
            BATCH,
            *table(("reason", "meaning"), [*_reasons(EventReason, PREFIXES), *CHILDREN]),
            TAIL,
        )
    )


def _reasons(reasons: type[StrEnum], prefixes: Mapping[Any, str]) -> Iterator[tuple[str, str]]:
    described = attribute_docstrings(reasons)
    for reason in reasons:
        yield code(f"{prefixes.get(reason, '')}{reason}"), cell(plain(described[reason.name]))


def _idle_reasons() -> Iterator[tuple[str, str, str]]:
    described = attribute_docstrings(IdleReason)
    for reason in IdleReason:
        first, second = reason.suffixes
        yield code(f"{KIND}{first}"), code(f"{KIND}{second}"), cell(plain(described[reason.name]))
