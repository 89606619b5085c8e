"""Checks by dry-run whether the operator's pod and pods of jobs are admitted, and with ``--pull`` whether its image can be pulled."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from api.meta import PODS
from controller.kube.errors import ApiError, NotFound, describe
from rallypoint.cli.check.facts import ERRORS, NAMESPACES, Facts, missing_right, unreadable
from rallypoint.cli.check.findings import Finding, blocker, names, ok, unknown, warning
from rallypoint.cli.check.installation import deployment
from rallypoint.cli.check.jobs import JobSummary
from rallypoint.cli.cluster import Object
from rallypoint.diagnosis.objects import container_statuses, name_of, spec_of, state_of, status_of

CHECK = "admission"
POLL_SECONDS = 1.0
PULL_SECONDS = 120.0
"""For starting the pod of ``--pull``."""
MAX_JOB_PODS = 64
"""Pods of jobs that are tried: one for each namespace and kind."""
ENFORCE = "pod-security.kubernetes.io/enforce"
_PULL_FAILURES = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_FAILURES = _PULL_FAILURES | {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError"}
_NAME = {"app.kubernetes.io/name": "rallypoint-check"}
_QUOTA_FULL = "exceeded quota"


def operator_pod(facts: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return metadata and spec of the operator's pod: of the one that is installed, else of the shipped Deployment.

    The operator's container is the first one.
    """
    ours = facts.installed
    template: Any = ours.template if ours else spec_of(deployment())["template"]
    spec = dict(template["spec"])
    if not ours:
        spec.pop("serviceAccountName", None)  # the installation creates it
    sidecars = list(spec["containers"])
    index = next((i for i, c in enumerate(sidecars) if ours and c.get("name") == ours.container), 0)
    container = sidecars.pop(index)
    image = facts.options.image or (facts.ours.image if facts.ours else container["image"])
    spec["containers"] = [{**container, "image": image}, *sidecars]
    return dict(template.get("metadata") or {}), spec


async def operator_pod_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield whether admission, PodSecurity and quotas of the namespace accept one more pod of the operator."""
    namespace = facts.namespace
    found = await facts.reader.get(NAMESPACES, namespace)
    if found is None:
        yield ok(
            CHECK, f"namespace {namespace} does not exist yet, so that no policy of it refuses the operator"
        )
        return
    metadata, spec = operator_pod(facts)
    pod = {"metadata": {**metadata, "generateName": "rallypoint-check-"}, "spec": spec}
    level = (found["metadata"].get("labels") or {}).get(ENFORCE)
    policy = f" (PodSecurity: {level})" if level else ""
    try:
        await facts.reader.dry_run(PODS, pod, namespace)
    except ApiError as error:
        if missing_right(error):
            raise
        yield refusal(f"namespace {namespace}{policy} refuses the operator's pod", error)
    else:
        yield ok(CHECK, f"namespace {namespace}{policy} admits one more pod of the operator")


def refusal(text: str, error: ApiError) -> Finding:
    """Return the finding of a pod that the server refuses."""
    if "violates PodSecurity" in error.message:
        step = f"set the label {ENFORCE} of the namespace to a level that allows it, or change the pod"
    elif "quota" in error.message:
        step = "raise the ResourceQuota: a rolling update needs one pod more"
    elif "does not support dry run" in error.message:
        return unknown(CHECK, f"not checked: {error.message}")
    else:
        step = "fix what the message names"
    return blocker(CHECK, f"{text}: {error.message}", step)


async def operator_state_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Yield pods of the installed operator whose containers do not start."""
    ours = facts.ours
    if ours is None:
        return
    labels = (ours.template.get("metadata") or {}).get("labels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    pods = await facts.reader.all(PODS, ours.namespace, labelSelector=selector)
    for pod in pods:
        for status in container_statuses(pod):
            waiting = state_of(status, "waiting")
            if waiting.get("reason") in _FAILURES:
                message = waiting.get("message") or ""
                yield blocker(
                    "image" if waiting["reason"] in _PULL_FAILURES else "operators",
                    f"pod {ours.namespace}/{name_of(pod)}: {waiting['reason']}{f': {message}' if message else ''}",
                    f"kubectl -n {ours.namespace} describe pod {name_of(pod)}",
                )


async def job_pod_findings(facts: Facts, unfinished: Sequence[JobSummary]) -> AsyncIterator[Finding]:
    """Yield namespaces that would refuse a pod of a job, tried with one unfinished job for each namespace and kind."""
    samples = {(job.namespace, job.kind): job for job in reversed(unfinished) if job.template.get("spec")}
    tried = list(samples.values())[:MAX_JOB_PODS]
    results = await asyncio.gather(*(_try_job_pod(facts, job) for job in tried))
    refused = [(job, error) for job, error in zip(tried, results, strict=True) if error is not None]
    rights = [error for _, error in refused if missing_right(error)]
    if rights:
        yield unreadable(CHECK, rights[0], "pods of jobs")
    shown = [(job, error) for job, error in refused if not missing_right(error)]
    for job, error in shown:
        message = error.message if isinstance(error, ApiError) else str(error)
        yield warning(
            CHECK,
            f"{job.full_name}: a new pod of it would be refused: {message}",
            "correct the job's template or the policy of its namespace: replaced pods fail otherwise",
        )
    if not refused and tried:
        yield ok(
            CHECK,
            f"pods of {names(job.full_name for job in tried)} are admitted (one job for each namespace and kind)",
        )


async def _try_job_pod(facts: Facts, job: JobSummary) -> Exception | None:
    """Return why a pod of the job's first role is refused; None if it is admitted, or only a quota is used up by running pods."""
    metadata = job.template.get("metadata") or {}
    pod = {
        "metadata": {
            "generateName": "rallypoint-check-",
            **{key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)},
        },
        "spec": {**job.template["spec"]},
    }
    try:
        await facts.reader.dry_run(PODS, pod, job.namespace)
    except ERRORS as error:
        return None if _QUOTA_FULL in str(error) or "dry run" in str(error) else error
    return None


async def pull_findings(facts: Facts) -> AsyncIterator[Finding]:
    """Start a pod with the operator's image that prints its version, and delete it; yield whether the image could be pulled."""
    if not facts.options.pull:
        return
    namespace, (_, spec) = facts.namespace, operator_pod(facts)
    container = spec["containers"][0]
    name = f"rallypoint-check-{secrets.token_hex(3)}"
    version = {
        key: value
        for key, value in container.items()
        if not key.endswith("Probe") and key not in {"args", "ports"}
    }
    spec = {
        **spec,
        "containers": [{**version, "command": ["python", "-m", "controller", "--version"]}],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    spec.pop("topologySpreadConstraints", None)
    try:
        pod = await facts.reader.create(
            PODS, {"metadata": {"name": name, "labels": _NAME}, "spec": spec}, namespace
        )
    except NotFound:
        yield unknown(
            "image",
            f"not pulled: namespace {namespace} does not exist",
            "create it, or name another one with -n",
        )
        return
    try:
        async with asyncio.timeout(PULL_SECONDS):
            while not (finding := pull_state(pod, container["image"])):
                await asyncio.sleep(POLL_SECONDS)
                pod = await facts.reader.get(PODS, name, namespace) or pod
    except TimeoutError:
        finding = unknown(
            "image",
            f"the pod {namespace}/{name} with image {container['image']} did not start within {PULL_SECONDS:.0f} s: {_phase(pod)}",
            "look for a node that accepts it, and try again",
        )
    finally:
        left = await asyncio.shield(_delete(facts, namespace, name))
    yield finding
    if left:
        yield left


async def _delete(facts: Facts, namespace: str, name: str) -> Finding | None:
    """Delete the pod; return that it is left if that fails."""
    try:
        await facts.reader.cluster.client.delete(PODS, namespace, name, grace_period_seconds=0)
    except NotFound:
        return None
    except ERRORS as error:
        return warning(
            "image",
            f"the pod {namespace}/{name} of this check is left: {describe(error)}",
            f"kubectl -n {namespace} delete pod {name}",
        )
    return None


def _phase(pod: Object) -> str:
    conditions = status_of(pod).get("conditions") or ()
    unscheduled = next(
        (c.get("message") for c in conditions if c.get("status") == "False" and c.get("message")), ""
    )
    return str(unscheduled or status_of(pod).get("phase") or "no phase")


def pull_state(pod: Object, image: str) -> Finding | None:
    """Return the result of the pod of ``--pull``; None while it is unknown."""
    for status in container_statuses(pod):
        waiting, ended = state_of(status, "waiting"), state_of(status, "terminated")
        if waiting.get("reason") in _PULL_FAILURES:
            return blocker(
                "image",
                f"the image {image} cannot be pulled: {waiting['reason']}: {waiting.get('message') or 'no message'}",
                "correct the image, or add imagePullSecrets to the Deployment",
            )
        if ended and ended.get("exitCode"):
            return blocker(
                "image",
                f"the image {image} was pulled, but python -m controller --version ends with {ended['exitCode']}",
                "check that it is an image of the operator, for the architecture of the nodes",
            )
        if ended or state_of(status, "running"):
            return ok("image", f"the image {image} was pulled and starts")
    if status_of(pod).get("phase") in {"Succeeded", "Running"}:
        return ok("image", f"the image {image} was pulled and starts")
    return None
