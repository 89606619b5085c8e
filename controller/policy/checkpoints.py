"""Checkpoints of a job's program: where they are, which the program learns by a variable, and when the newest was complete, which pods report."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from api.children import Pod
from api.job import Job
from api.labels import CHECKPOINT_DIR
from controller.domain import Child, with_pod_spec

DIRECTORY_VARIABLE: Final = "RALLYPOINT_CHECKPOINT_DIR"
"""The environment variable with the value of the job's annotation."""


def with_directory(job: Job, child: Child) -> Child:
    """Return the child with the variable if it is a pod, or a batch Job, and the job has the annotation."""
    directory = (job.metadata.annotations or {}).get(CHECKPOINT_DIR)
    return with_pod_spec(child, partial(_with_variable, directory=directory)) if directory else child


def newest(pods: Iterable[Pod]) -> datetime | None:
    """Return when the newest checkpoint was complete that any of these pods reports."""
    return max((pod.checkpoint_at for pod in pods if pod.checkpoint_at), default=None)


def _with_variable(spec: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """Return the pod spec with the variable in each container whose template does not set it."""
    variable = {"name": DIRECTORY_VARIABLE, "value": directory}
    return {
        **spec,
        "containers": [
            container if _has(container) else {**container, "env": [*(container.get("env") or ()), variable]}
            for container in spec["containers"]
        ],
    }


def _has(container: Mapping[str, Any]) -> bool:
    return any(variable.get("name") == DIRECTORY_VARIABLE for variable in container.get("env") or ())
