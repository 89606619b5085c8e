"""Resolves the target of a remote command, and decides which pods get the tools. Pure."""

from dataclasses import dataclass

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.network.dns import JOB_LABELS, PodNetwork
from rallypoint.local.node.remote.command_line import Call
from rallypoint.local.node.streams.log_endpoint import container_of

OPERATOR_LABEL = "training.kubeflow.org/operator-name"
OPERATORS = ("mpi-operator", "mpijob-controller")
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True, slots=True)
class Found:
    pod: Manifest
    container: str


class Unreachable(Exception):
    """The target of a call is unreachable."""

    ssh = "ssh: Could not resolve hostname {host}: Name or service not known"
    kubectl = 'Error from server (NotFound): pods "{host}" not found'
    is_transient = False
    """Whether a retry may succeed."""


class Unknown(Unreachable):
    """Nothing goes by that name."""


class NotYet(Unknown):
    """It is a pod of the same job that is yet to come.

    Differs: ssh does not try again to resolve a name. Here a launcher that is first would only be started again.
    """

    is_transient = True


class NotRunningYet(Unreachable):
    """The pod is there, and its container does not run."""

    ssh = "ssh: connect to host {host} port 22: Connection refused"
    kubectl = "error: unable to upgrade connection: no container of pod {host} runs"
    is_transient = True


class Forbidden(Unreachable):
    """The target belongs to another job."""

    ssh = "ssh: connect to host {host} port 22: Permission denied: pods reach those of their own job alone"
    kubectl = (
        'Error from server (Forbidden): pods "{host}" is forbidden: pods reach those of their own job alone'
    )


class NotStarted(Unreachable):
    """The command cannot start. The text says why."""

    ssh = "ssh: {error}"
    kubectl = "error: Internal error occurred: error executing command in container: {error}"


def error_message(tool: str, call: Call, error: Unreachable) -> str:
    """What the tool says, in its own words where it has any."""
    words = error.ssh if tool == "ssh" else error.kubectl
    return words.format(host=call.host, error=error)


def is_equipped(pod: Manifest) -> bool:
    """Whether the pod belongs to a job whose pods start processes in each other."""
    labels = pod["metadata"].get("labels") or {}
    return "mpi_job_name" in labels or (labels.get(OPERATOR_LABEL) in OPERATORS and bool(job_of(pod)))


def job_of(pod: Manifest) -> str:
    labels = pod["metadata"].get("labels") or {}
    return next((labels[label] for label in JOB_LABELS if labels.get(label)), "")


def find(network: PodNetwork, caller: Manifest, call: Call) -> Found:
    """The pod and the container that ``call`` means.

    In a cluster a key or a role decides who may; both belong to one job, so that is the rule here.

    Raises:
        Unreachable: there is none, or it is not for the caller.
    """
    own = caller["metadata"]["namespace"]
    if call.namespace not in ("", own):
        raise Forbidden
    pod = network.find(caller, call.host)
    if pod is None:
        raise NotYet if network.is_sibling(caller, call.host) else Unknown
    if not job_of(caller) or (pod["metadata"]["namespace"], job_of(pod)) != (own, job_of(caller)):
        raise Forbidden
    try:
        return Found(pod, _container(pod, call.container))
    except ValueError as error:
        raise NotStarted(error) from error


def _container(pod: Manifest, name: str) -> str:
    """Differs: the first container where several are and none is named or marked, as for a sshd in it."""
    chosen = name or (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER, "")
    return container_of(pod, chosen or pod["spec"]["containers"][0]["name"])
