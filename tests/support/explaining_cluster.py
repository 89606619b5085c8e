"""A control plane, scheduler and operator, with broken jobs that a kubelet of this module reports on."""

import contextlib
import io
import json
import math
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import yaml

from api.labels import JOB_NAME
from rallypoint.cli import main
from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.controlplane.flags import TEST_CONTROLLERS
from rallypoint.testing.service import MXJOB, WITH_MPI_V1, in_cluster_service, install
from tests.support.broken_jobs import GANG_SCHEDULER, GPU, GPUS_OF_NODE, MANUAL, OTHER_GPU, BrokenJob
from tests.support.invalid_jobs import Object

_TESTS = Path(__file__).parents[1]
_DEFINITIONS = (
    _TESTS / "explain" / "definitions.yaml",
    _TESTS / "parity" / "golden" / "crds" / "podgroups.yaml",
    MXJOB / "kubeflow.org_mxjobs.yaml",
)
_FLAGS = ("--mpi-ssh-check=false",)
"""No process answers in simulated pods."""
_GANG_FLAGS = (*_FLAGS, f"--gang-scheduler-name={GANG_SCHEDULER}")
_NODES: tuple[Object, ...] = (
    {},
    {"labels": {"pool": "reserved"}, "taints": [{"key": "reserved", "value": "yes", "effect": "NoSchedule"}]},
)


@dataclass(frozen=True)
class Report:
    """What can be read about a job in the cluster."""

    condition: str
    """The newest condition, as text."""
    warnings: list[str]
    causes: list[str]
    """The causes of ``rallypoint why``, with their next steps."""


class ExplainingCluster:
    """The cluster; jobs of the same operator are submitted together, so that they wait together."""

    def __init__(self, jobs: Sequence[BrokenJob]) -> None:
        self._jobs = jobs
        self._plane = ControlPlane(
            nodes=len(_NODES), scheduler=True, controllers=(*TEST_CONTROLLERS, "resourcequota-controller")
        )
        self._cleanup = ExitStack()
        self._operator = ExitStack()
        self._submitted: dict[bool, float] = {}
        """When the jobs were submitted, those of gangs and the others."""
        self._replies: dict[str, str] = {}
        """What ``kubectl apply`` said, by the job's slug."""

    def __enter__(self) -> Self:
        plane = self._cleanup.enter_context(self._plane)
        self._cleanup.enter_context(self._operator)
        install(plane, WITH_MPI_V1)
        plane.apply_files(*_DEFINITIONS)
        for index, node in enumerate(_NODES):
            capacity = {GPU: str(GPUS_OF_NODE), OTHER_GPU: str(GPUS_OF_NODE)} if index == 0 else {GPU: None}
            path = f"/api/v1/nodes/node-{index}"
            spec = {"taints": node.get("taints")}  # without those of nodes that are not ready
            plane.request("PATCH", path, {"metadata": {"labels": node.get("labels", {})}, "spec": spec})
            plane.request(
                "PATCH", f"{path}/status", {"status": {"allocatable": capacity, "capacity": capacity}}
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._cleanup.close()

    def apply(self, case: BrokenJob) -> str:
        """Return what ``kubectl apply`` says about the job."""
        if case.is_gang not in self._submitted:
            self._submitted[case.is_gang] = math.inf
            self._submit([job for job in self._jobs if job.is_gang == case.is_gang], is_gang=case.is_gang)
            self._submitted[case.is_gang] = time.monotonic()
        return self._replies[case.slug]

    def age_seconds(self, case: BrokenJob) -> float:
        """Return the time since the job was submitted."""
        return time.monotonic() - self._submitted[case.is_gang]

    def report(self, case: BrokenJob) -> Report:
        """Act as the kubelet of the job's pods, and return what can be read about the job."""
        if case.pod_status:
            self._set_pod_statuses(case)
        kind, name = case.job["kind"].lower(), case.job["metadata"]["name"]
        written = io.StringIO()
        arguments = ["-n", case.slug, "--kubeconfig", str(self._plane.kubeconfig()), "-o", "json"]
        with contextlib.redirect_stdout(written):
            assert main(["why", f"{kind}/{name}", *arguments]) == 0
        (found,) = json.loads(written.getvalue())
        group_version = case.job["apiVersion"]
        job = self._plane.request("GET", f"/apis/{group_version}/namespaces/{case.slug}/{kind}s/{name}")
        newest = max(
            (job.get("status") or {}).get("conditions") or [{}],
            key=lambda condition: str(condition.get("lastUpdateTime")),
        )
        return Report(
            ""
            if not newest
            else f"{newest['type']}={newest['status']}, {newest['reason']}: {newest.get('message', '')}",
            [
                f"{event['reason']}: {event['message']}"
                for event in self._items(case, "events")
                if event["type"] == "Warning" and event["involvedObject"]["kind"] == case.job["kind"]
            ],
            [spell_cause(cause) for cause in found["causes"]],
        )

    def _submit(self, cases: Sequence[BrokenJob], *, is_gang: bool) -> None:
        """Start the operator, create what the jobs need and, when that is there, the jobs."""
        self._operator.close()
        flags = _GANG_FLAGS if is_gang else _FLAGS
        self._operator.enter_context(in_cluster_service(self._plane, flags))
        for case in cases:
            metadata = {"name": case.slug, "labels": dict(case.labels)}
            self._plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for case in cases:
            account = f"/api/v1/namespaces/{case.slug}/serviceaccounts/default"
            self._plane.wait("service accounts", partial(self._plane.has, account))
            self._plane.apply(*(_in(case.slug, needed) for needed in case.needs))
        self._plane.wait("earlier jobs to have nodes", lambda: self._earlier_jobs_have_nodes(cases))
        kubectl = binaries.ensure(["kubectl"])["kubectl"]
        for case in cases:
            done = subprocess.run(
                [kubectl, "--kubeconfig", self._plane.kubeconfig(), "-n", case.slug, "apply", "-f", "-"],
                input=yaml.safe_dump(_in(case.slug, case.job)),
                capture_output=True,
                text=True,
                check=False,
            )
            self._replies[case.slug] = done.stderr or done.stdout
            if case.is_deleted:
                plural = f"{case.job['kind'].lower()}s"
                self._plane.request(
                    "DELETE",
                    f"/apis/{case.job['apiVersion']}/namespaces/{case.slug}/{plural}/{case.job['metadata']['name']}",
                )

    def _earlier_jobs_have_nodes(self, cases: Sequence[BrokenJob]) -> bool:
        earlier = {
            (case.slug, needed["metadata"]["name"])
            for case in cases
            for needed in case.needs
            if needed["kind"].endswith("Job")
        }
        pods = self._plane.request("GET", "/api/v1/pods")["items"]
        placed = {
            (pod["metadata"]["namespace"], pod["metadata"].get("labels", {}).get(JOB_NAME))
            for pod in pods
            if pod["spec"].get("nodeName")
        }
        return earlier <= placed

    def _items(self, case: BrokenJob, plural: str) -> list[Any]:
        items: list[Any] = self._plane.request("GET", f"/api/v1/namespaces/{case.slug}/{plural}")["items"]
        return items

    def _set_pod_statuses(self, case: BrokenJob) -> None:
        reason, message = case.pod_event
        for pod in self._items(case, "pods"):
            name, status = pod["metadata"]["name"], pod["status"]
            is_new = status.get("phase") == "Pending" and "containerStatuses" not in status
            if not (
                is_new and pod["spec"].get("nodeName") and MANUAL in pod["metadata"].get("annotations", {})
            ):
                continue
            path = f"/api/v1/namespaces/{case.slug}/pods/{name}/status"
            self._plane.request("PATCH", path, {"status": case.pod_status})
            if reason:
                about = {"kind": "Pod", "namespace": case.slug, "name": name, "uid": pod["metadata"]["uid"]}
                event = {"metadata": {"name": f"{name}.1"}, "involvedObject": about, "type": "Warning"}
                event |= {"reason": reason, "message": message}
                self._plane.request("POST", f"/api/v1/namespaces/{case.slug}/events", event)


def _in(namespace: str, manifest: Object) -> Object:
    """Return the manifest in that namespace."""
    named: Object = json.loads(json.dumps(manifest).replace("NAMESPACE", namespace))
    return {**named, "metadata": {**named["metadata"], "namespace": namespace}}


def spell_cause(cause: Object) -> str:
    about = ", ".join(cause["about"])
    quote = f"; last log line: {cause['quote']}" if cause["quote"] else ""
    step = f" Next: {cause['nextStep']}" if cause["nextStep"] else ""
    return f"{about + ': ' if about else ''}{cause['text']}{quote}{step}"
