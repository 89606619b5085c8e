"""Tells the program of a job where its checkpoints are: an annotation of the job becomes a variable in all containers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from api.batch import BATCH_JOBS
from api.job import Job
from api.labels import CHECKPOINT_DIR
from api.meta import PODS
from controller.domain import Child, WriteMode

DIRECTORY_VARIABLE: Final = "RALLYPOINT_CHECKPOINT_DIR"
"""The environment variable with the value of the job's annotation."""


def with_directory(job: Job, child: Child) -> Child:
    """Return the child with the variable if it is a pod, or a batch Job, and the job has the annotation."""
    directory = (job.metadata.annotations or {}).get(CHECKPOINT_DIR)
    if not directory or child.write_mode is not WriteMode.CREATE or child.resource not in (PODS, BATCH_JOBS):
        return child
    build = child.body

    def body() -> dict[str, Any]:
        made = build()
        if child.resource == PODS:
            return {**made, "spec": _with_variable(made["spec"], directory)}
        template = made["spec"]["template"]
        template = {**template, "spec": _with_variable(template["spec"], directory)}
        return {**made, "spec": {**made["spec"], "template": template}}

    return replace(child, body=body)


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
