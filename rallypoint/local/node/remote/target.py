"""Finds the target of a remote command, and decides which pods get the tools. Pure."""

from dataclasses import dataclass

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.network.dns import JOB_LABELS, PodNetwork
from rallypoint.local.node.remote.command_line import Call
from rallypoint.local.node.streams.log_endpoint import container_of

OPERATOR_LABEL = "training.kubeflow.org/operator-name"
OPERATORS = ("mpi-operator", "mpijob-controller")
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True, slots=True)
class Target:
    pod: Manifest
    container: str


class Unreachable(Exception):
    """The target of a call is unreachable."""

    ssh = "ssh: Could not resolve hostname {host}: Name or service not known"
    kubectl = 'Error from server (NotFound): pods "{host}" not found'
    is_transient = False
    """Whether a retry may succeed."""


class PodNotFound(Unreachable):
    """No pod has that name."""


class PodNotCreatedYet(PodNotFound):
    """The target is a pod of the same job that does not exist yet.

    Differs: ssh does not retry name resolution. Here it does: otherwise a launcher that starts first would fail.
    """

    is_transient = True


class ContainerNotRunning(Unreachable):
    """The pod exists, but its container does not run."""

    ssh = "ssh: connect to host {host} port 22: Connection refused"
    kubectl = "error: unable to upgrade connection: no container of pod {host} runs"
    is_transient = True


class Forbidden(Unreachable):
    """The target belongs to another job."""

    ssh = "ssh: connect to host {host} port 22: Permission denied: pods reach only pods of their own job"
    kubectl = (
        'Error from server (Forbidden): pods "{host}" is forbidden: pods reach only pods of their own job'
    )


class CommandNotStarted(Unreachable):
    """The command cannot start. The text says why."""

    ssh = "ssh: {error}"
    kubectl = "error: Internal error occurred: error executing command in container: {error}"


def error_message(tool: str, call: Call, error: Unreachable) -> str:
    """Return the message of the tool, with the original's text if there is one."""
    words = error.ssh if tool == "ssh" else error.kubectl
    return words.format(host=call.host, error=error)


def is_equipped(pod: Manifest) -> bool:
    """Return whether the pods of this pod's job start processes in each other."""
    labels = pod["metadata"].get("labels") or {}
    return "mpi_job_name" in labels or (labels.get(OPERATOR_LABEL) in OPERATORS and bool(job_of(pod)))


def job_of(pod: Manifest) -> str:
    labels = pod["metadata"].get("labels") or {}
    return next((labels[label] for label in JOB_LABELS if labels.get(label)), "")


def find(network: PodNetwork, caller: Manifest, call: Call) -> Target:
    """Return the target pod and container of ``call``.

    A caller reaches only pods of its own job: in a cluster, the SSH key or the Role of the job has the same effect.

    Raises:
        Unreachable: the target does not exist or belongs to another job.
    """
    own = caller["metadata"]["namespace"]
    if call.namespace not in ("", own):
        raise Forbidden
    pod = network.find(caller, call.host)
    if pod is None:
        raise PodNotCreatedYet if network.is_sibling(caller, call.host) else PodNotFound
    if not job_of(caller) or (pod["metadata"]["namespace"], job_of(pod)) != (own, job_of(caller)):
        raise Forbidden
    try:
        return Target(pod, _container(pod, call.container))
    except ValueError as error:
        raise CommandNotStarted(error) from error


def _container(pod: Manifest, name: str) -> str:
    """Return the container's name.

    Differs: without a name and without an annotation it is the first container, as for an sshd in it.
    """
    chosen = name or (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER, "")
    return container_of(pod, chosen or pod["spec"]["containers"][0]["name"])
