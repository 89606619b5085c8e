"""Jobs that do not run, and the words that users must find about each: its cause and the next step.

Each is as small as its defect allows. ``tests/explain`` submits them to a cluster and to ``rallypoint run``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.kinds.jax import JAX
from controller.kinds.mpi import MPI
from controller.kinds.mxnet import MXNET
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST
from tests.support.invalid_jobs import Object, job, role

NAME = "train"
MANUAL = "rallypoint.testing/manual-status"
"""The annotation of simulated pods that do not start by themselves."""
GANG_SCHEDULER = "volcano"
GPU, OTHER_GPU = "nvidia.com/gpu", "amd.com/gpu"
GPUS_OF_NODE = 8
"""Of each of the two sorts."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words of the cause and of the next step; what the API server refuses has both in one sentence."""

    cause: str
    next_step: str


@dataclass(frozen=True, slots=True)
class BrokenJob:
    """A job that does not run, where it can be submitted and what each place must say."""

    what: str
    job: Object
    apply: Words | None = None
    """Of ``kubectl apply``, and of ``rallypoint run``, which then ends with 2."""
    why: Words | None = None
    """Of ``rallypoint why`` in a cluster that has accepted the job."""
    run: Words | None = None
    """Of the end of ``rallypoint run``."""
    local_why: Words | None = None
    """Of ``rallypoint why`` while ``rallypoint up`` runs the job."""
    exit_status: int = 2
    """Of ``rallypoint run``."""
    needs: Sequence[Object] = ()
    """Objects of its namespace that exist before it. The namespace's name is in place of ``NAMESPACE``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of its namespace."""
    pod_status: Object = field(default_factory=dict)
    """What a kubelet reports of each of its pods with the annotation ``MANUAL``."""
    pod_event: tuple[str, str] = ("", "")
    """Reason and message of a warning of the kubelet about each of these pods."""
    is_gang: bool = False
    is_deleted: bool = False

    @property
    def slug(self) -> str:
        """Return a name for its namespace."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.what.lower())[:60].strip("-")


def pod(container: Object | None = None, *, name: str = "pytorch", **spec: Any) -> Object:
    """Return a pod template whose simulated pods run."""
    main = {"name": name, "image": "train:1", "command": ["sleep", "1000"], **(container or {})}
    return {"spec": {"containers": [main], **spec}}


def manual_pod(container: Object | None = None, **spec: Any) -> Object:
    """Return a pod template whose simulated pods have the status that a test gives them."""
    return {"metadata": {"annotations": {MANUAL: ""}}, **pod(container, **spec)}


def shell(script: str) -> Object:
    """Return the command of a container."""
    return {"command": ["sh", "-c", script]}


def pytorch(
    template: Object | None = None, *, replicas: int = 1, restart: str = "", name: str = NAME, **spec: Any
) -> Object:
    """Return a PyTorchJob of workers."""
    worker: Object = {"replicas": replicas, "template": template or pod()}
    return job(
        PYTORCH, {"Worker": worker | ({"restartPolicy": restart} if restart else {})}, name=name, **spec
    )


def mpi(launcher: Object, worker: Object, **spec: Any) -> Object:
    """Return an MPIJob of a launcher and a worker."""
    roles = {
        "Launcher": {"restartPolicy": "Never", "template": launcher},
        "Worker": {"replicas": 1, "template": worker},
    }
    return job(MPI, roles, name=NAME, version="v2beta1", **spec)


def gpus(amount: int, resource: str = GPU) -> Object:
    return {"resources": {"limits": {resource: amount}}}


def waiting(reason: str, message: str = "", **status: Any) -> Object:
    """Return the status of a pod whose container waits."""
    return _status("Pending", {"waiting": {"reason": reason, "message": message}}, **status)


def ended(code: int, reason: str = "Error", message: str = "") -> Object:
    """Return the end of a container."""
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "finishedAt": "2026-01-01T00:00:00Z",
        }
    }


def _status(phase: str, state: Object, **status: Any) -> Object:
    container = {
        "name": "pytorch",
        "image": "train:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
        **status,
    }
    return {"phase": phase, "containerStatuses": [container]}


def object_of(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def volume(**source: Any) -> Object:
    return {"volumes": [{"name": "data", **source}]}


CRASHES = waiting(
    "CrashLoopBackOff",
    "back-off 40s restarting failed container",
    restartCount=3,
    lastState=ended(1, message="FileNotFoundError: /data/train.csv"),
)
FAILS = shell("echo 'FileNotFoundError: /data/train.csv' | tee /dev/termination-log; exit 1")
DELETE = f"kubectl delete pytorchjob {NAME}"
LOG = "last lines of"
POLICY: Object = {
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
            ]
        },
        "validations": [{"expression": "false", "message": "images must come from registry.example.com"}],
    }
}
ONLY_HERE = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "NAMESPACE"}}}
MASTER = {"Master": role(name="pytorch")}

REFUSED = (
    BrokenJob(
        "The key of a role is misspelt",
        job(PYTORCH, {"Workers": role(name="pytorch")}, name=NAME),
        apply=Words("the names of roles", "must be Master or Worker"),
    ),
    BrokenJob(
        "The restartPolicy is misspelt",
        pytorch(restart="onFailure"),
        apply=Words("restartPolicy", "must be Always, OnFailure, Never or ExitCode"),
    ),
    BrokenJob(
        "No container has the name of the main one",
        job(TENSORFLOW, {"Worker": role(name="train")}, name=NAME),
        apply=Words("Required value: the template of each role", "container with name tensorflow"),
    ),
    BrokenJob(
        "The map of roles is empty",
        job(JAX, {}, name=NAME),
        apply=Words("spec.jaxReplicaSpecs", "must have at least one role: Worker"),
    ),
    BrokenJob(
        "Two masters",
        job(PYTORCH, {"Master": role(name="pytorch", replicas=2)}, name=NAME),
        apply=Words("replicas of Master", "must be 1 or omitted"),
    ),
    BrokenJob(
        "A chief and a master",
        job(TENSORFLOW, {"Chief": role(name="tensorflow"), "Master": role(name="tensorflow")}, name=NAME),
        apply=Words("spec.tfReplicaSpecs", "must not have more than 1 Chief or Master role"),
    ),
    BrokenJob(
        "nProcPerNode twice",
        pytorch(nprocPerNode="1", elasticPolicy={"nProcPerNode": 1}),
        apply=Words("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode"),
    ),
    BrokenJob(
        "No containers",
        pytorch({"spec": {"containers": []}}),
        apply=Words("the template of each role", "must have at least one container"),
    ),
    BrokenJob(
        "No image",
        job(PADDLE, {"Worker": role(name="paddle", image="")}, name=NAME),
        apply=Words("spec.paddleReplicaSpecs", "each container must have an image"),
    ),
    BrokenJob(
        "A name that no Service can have",
        pytorch(name="7b-chat"),
        apply=Words("metadata.name", "begin with a letter"),
    ),
    BrokenJob(
        "A name that is too long for pods",
        pytorch(name="train-" + "x" * 56),
        apply=Words("the names of pods", "must have at most 63 characters"),
    ),
    BrokenJob(
        "Replicas: two",
        job(PYTORCH, {"Worker": role(name="pytorch", replicas="two")}, name=NAME),
        apply=Words("spec.pytorchReplicaSpecs.Worker.replicas", "must be of type integer"),
    ),
    BrokenJob(
        "A misspelt field",
        job(PYTORCH, {"Worker": role(name="pytorch", replcias=2)}, name=NAME),
        apply=Words("unknown field", "spec.pytorchReplicaSpecs.Worker.replcias"),
    ),
    BrokenJob(
        "Zero pods", pytorch(replicas=0), apply=Words("Forbidden", "at least one role must have replicas")
    ),
    BrokenJob(
        "An XGBoostJob without a master",
        job(XGBOOST, {"Worker": role(name="xgboost")}, name=NAME),
        apply=Words("spec.xgbReplicaSpecs", "must have the role Master"),
    ),
    BrokenJob(
        "An elastic job without workers",
        job(PYTORCH, MASTER, name=NAME, elasticPolicy={}),
        apply=Words("spec.pytorchReplicaSpecs", "must have the role Worker if elasticPolicy is used"),
    ),
    BrokenJob(
        "An MPIJob without a launcher",
        job(MPI, {"Worker": role(name="mpi")}, name=NAME, version="v2beta1"),
        apply=Words("spec.mpiReplicaSpecs", "must have the role Launcher"),
    ),
    BrokenJob(
        "managedBy names no known controller",
        pytorch(runPolicy={"managedBy": "kueue"}),
        apply=Words("spec.runPolicy.managedBy", "kueue.x-k8s.io/multikueue"),
    ),
)

HOLDER_ROLES = {
    "Master": {
        "template": {
            "metadata": {"annotations": {"rallypoint.testing/exit-code": "0"}},
            **pod(gpus(1, OTHER_GPU)),
        }
    },
    "Worker": {"template": pod(gpus(GPUS_OF_NODE - 1, OTHER_GPU))},
}

WAITING = (
    BrokenJob(
        "A pod needs more GPUs than any node has",
        pytorch(pod(gpus(16))),
        why=Words(f"requests 16 {GPU}, and the largest node has 8", "request less, or add larger nodes"),
        run=Words(f"a pod requests 16 {GPU}, and this machine has 0", "request less"),
    ),
    BrokenJob(
        "The pods of a finished job hold the GPUs",
        pytorch(pod(gpus(GPUS_OF_NODE, OTHER_GPU))),
        needs=[
            job(PYTORCH, HOLDER_ROLES, name="old", runPolicy={"cleanPodPolicy": "None"}),
        ],
        why=Words("old has Succeeded and keeps its pods", "kubectl patch pytorchjob old"),
    ),
    BrokenJob(
        "The pods of a running job hold the GPUs",
        pytorch(pod(gpus(GPUS_OF_NODE))),
        needs=[pytorch(pod(gpus(GPUS_OF_NODE)), name="other")],
        why=Words(
            "holds 8 nvidia.com/gpu, which train-worker-0 needs; of PyTorchJob other",
            "free what other pods hold",
        ),
    ),
    BrokenJob(
        "The nodeSelector fits no node",
        pytorch(pod(nodeSelector={"gpu": "h100"})),
        why=Words("didn't match Pod's node affinity/selector", "so that they match existing nodes"),
        run=Words("this node is excluded", "--node-labels"),
    ),
    BrokenJob(
        "The nodes have a taint",
        pytorch(pod(nodeSelector={"pool": "reserved"})),
        why=Words("untolerated taint", "so that they match existing nodes"),
    ),
    BrokenJob(
        "No scheduler has the name",
        pytorch(pod(schedulerName="my-scheduler")),
        why=Words(
            "waiting for the scheduler my-scheduler", "check that a scheduler with this name is running"
        ),
        run=Words("no scheduler my-scheduler runs here", "remove the field"),
    ),
    BrokenJob(
        "The pods have a scheduling gate",
        pytorch(pod(schedulingGates=[{"name": "example.com/quota"}])),
        why=Words("has scheduling gates: example.com/quota", "whoever set the gates must remove them"),
        run=Words("nobody removes the scheduling gates", "remove the field"),
    ),
    BrokenJob(
        "The PersistentVolumeClaim does not exist",
        pytorch(pod(**volume(persistentVolumeClaim={"claimName": "data"}))),
        why=Words('persistentvolumeclaim "data" not found', "create the PersistentVolumeClaim"),
        run=Words('persistentvolumeclaim "data" does not exist', "add its manifest"),
    ),
    BrokenJob(
        "The PersistentVolumeClaim is not bound",
        pytorch(pod(**volume(persistentVolumeClaim={"claimName": "data"}))),
        needs=[
            object_of(
                "v1",
                "PersistentVolumeClaim",
                "data",
                spec={
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "",
                },
            )
        ],
        why=Words("unbound immediate PersistentVolumeClaims", "StorageClass"),
    ),
    BrokenJob(
        "The ConfigMap does not exist",
        pytorch(manual_pod({"envFrom": [{"configMapRef": {"name": "settings"}}]})),
        pod_status=waiting("CreateContainerConfigError", 'configmap "settings" not found'),
        why=Words('configmap "settings" not found', "create the ConfigMap or Secret"),
        run=Words('configmap "settings" does not exist', "add its manifest"),
    ),
    BrokenJob(
        "The Secret of a volume does not exist",
        pytorch(manual_pod(**volume(secret={"secretName": "token"}))),
        pod_status=waiting("ContainerCreating"),
        pod_event=("FailedMount", 'MountVolume.SetUp failed for volume "data" : secret "token" not found'),
        why=Words('secret "token" not found', "create what the message names"),
        run=Words('secret "token" does not exist', "add its manifest"),
    ),
    BrokenJob(
        "The image cannot be pulled",
        pytorch(manual_pod()),
        pod_status=waiting("ImagePullBackOff", 'Back-off pulling image "train:1"'),
        pod_event=("Failed", 'Failed to pull image "train:1": not found'),
        why=Words("Failed to pull image", "correct the image or its imagePullSecrets"),
    ),
    BrokenJob(
        "The program fails again and again",
        pytorch(manual_pod(), restart="OnFailure"),
        pod_status=CRASHES,
        why=Words("FileNotFoundError: /data/train.csv", f"rallypoint logs {NAME}-worker-0 -c pytorch"),
    ),
    BrokenJob(
        "The program fails until backoffLimit",
        pytorch(manual_pod(FAILS), restart="OnFailure", runPolicy={"backoffLimit": 1}),
        pod_status={**CRASHES, "phase": "Running"},
        why=Words("backoff limit; last failure: train-worker-0", DELETE),
        run=Words("FileNotFoundError: /data/train.csv", "logs:"),
        exit_status=1,
    ),
    BrokenJob(
        "The program fails",
        pytorch(manual_pod(FAILS), restart="Never"),
        pod_status=_status("Failed", ended(1, message="FileNotFoundError: /data/train.csv")),
        why=Words("exit code 1: FileNotFoundError: /data/train.csv", DELETE),
        run=Words("FileNotFoundError: /data/train.csv", LOG),
        exit_status=1,
    ),
    BrokenJob(
        "The container exceeds its memory limit",
        pytorch(manual_pod({"resources": {"limits": {"memory": "1Gi"}}}), restart="Never"),
        pod_status=_status("Failed", ended(137, "OOMKilled")),
        why=Words("exit code 137, killed by SIGKILL (OOMKilled)", "raise the container's memory limit"),
    ),
    BrokenJob(
        "The pod is evicted",
        pytorch(manual_pod(), restart="Never"),
        pod_status={
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: ephemeral-storage.",
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ],
        },
        why=Words("low on resource: ephemeral-storage", "set the pod's requests to what it actually uses"),
    ),
    BrokenJob(
        "The job exceeds activeDeadlineSeconds",
        pytorch(runPolicy={"activeDeadlineSeconds": 3}),
        why=Words("was active longer than specified deadline", DELETE),
        run=Words("was active longer than specified deadline", "logs:"),
        exit_status=1,
    ),
    BrokenJob(
        "The program does not exist",
        pytorch(manual_pod({"command": ["trian.py"]}), restart="OnFailure"),
        pod_status=waiting(
            "CrashLoopBackOff",
            restartCount=2,
            lastState=ended(128, "StartError", 'exec: "trian.py": executable file not found in $PATH'),
        ),
        why=Words("executable file not found in $PATH", "correct the command"),
        run=Words("trian.py", "install it in the environment of this command, or use its path"),
        exit_status=1,
    ),
    BrokenJob(
        "The workingDir does not exist",
        pytorch(pod({"workingDir": "/srv/code"}), restart="OnFailure"),
        run=Words("/srv/code", "create the folder, or change workingDir"),
        exit_status=1,
    ),
    BrokenJob(
        "A rank never joins the rendezvous",
        job(
            PYTORCH,
            {
                "Master": {"template": pod(shell("echo waiting for 1 more worker; exec sleep 1000"))},
                "Worker": {"template": pod()},
            },
            name=NAME,
        ),
        local_why=Words(f"{NAME}-worker-0: has logged nothing", f"rallypoint exec {NAME}-worker-0"),
    ),
    BrokenJob(
        "The job is suspended, and nobody resumes it",
        pytorch(runPolicy={"suspend": True}),
        why=Words("suspended by its run policy", "to resume it: kubectl patch pytorchjob train"),
        run=Words("the job is suspended, and nobody resumes it in this run", "remove the field"),
    ),
    BrokenJob(
        "Kueue does not manage the kind of a suspended job",
        {
            **pytorch(runPolicy={"suspend": True}),
            "metadata": {"name": NAME, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        },
        why=Words("Kueue has not created a Workload for queue main", "docs/how-to/kueue.md"),
        run=Words("the job is suspended", "remove the field"),
    ),
    BrokenJob(
        "Kueue does not manage the kind, and the job runs outside any quota",
        {**pytorch(), "metadata": {"name": NAME, "labels": {"kueue.x-k8s.io/queue-name": "main"}}},
        why=Words("Kueue does not manage PyTorchJobs here", "docs/how-to/kueue.md"),
    ),
    BrokenJob(
        "managedBy leaves the job to another controller",
        pytorch(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}),
        why=Words("left to kueue.x-k8s.io/multikueue", "create it again without managedBy"),
        run=Words("kueue.x-k8s.io/multikueue does not run here", "remove the field"),
    ),
    BrokenJob(
        "A quota is exceeded",
        pytorch(),
        needs=[object_of("v1", "ResourceQuota", "team", spec={"hard": {"pods": "0"}})],
        why=Words("exceeded quota: team", "fix what the message names"),
    ),
    BrokenJob(
        "A LimitRange refuses the pods",
        pytorch(pod({"resources": {"limits": {"memory": "4Gi"}}})),
        needs=[
            object_of(
                "v1",
                "LimitRange",
                "small",
                spec={"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]},
            )
        ],
        why=Words("maximum memory usage per Container is 1Gi", "fix what the message names"),
    ),
    BrokenJob(
        "A policy of the cluster refuses the pods",
        pytorch(),
        needs=[
            object_of("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "NAMESPACE", **POLICY),
            object_of(
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicyBinding",
                "NAMESPACE",
                spec={
                    "policyName": "NAMESPACE",
                    "validationActions": ["Deny"],
                    "matchResources": ONLY_HERE,
                },
            ),
        ],
        why=Words("images must come from registry.example.com", "fix what the message names"),
    ),
    BrokenJob(
        "A webhook does not answer",
        pytorch(),
        needs=[
            object_of(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                "NAMESPACE",
                webhooks=[
                    {
                        "name": "pods.example.com",
                        "clientConfig": {"url": "https://127.0.0.1:1/"},
                        "rules": POLICY["spec"]["matchConstraints"]["resourceRules"],
                        "admissionReviewVersions": ["v1"],
                        "sideEffects": "None",
                        **ONLY_HERE,
                    }
                ],
            )
        ],
        why=Words('failed calling webhook "pods.example.com"', "fix what the message names"),
    ),
    BrokenJob(
        "Pod Security refuses the pods",
        pytorch(pod({"securityContext": {"privileged": True}})),
        labels={"pod-security.kubernetes.io/enforce": "baseline"},
        why=Words('violates PodSecurity "baseline', "fix what the message names"),
    ),
    BrokenJob(
        "The ServiceAccount does not exist",
        pytorch(pod(serviceAccountName="reader")),
        why=Words('serviceaccount "reader" not found', "fix what the message names"),
        run=Words('serviceaccount "reader" does not exist', "add its manifest"),
    ),
    BrokenJob(
        "Another object has the name of the Service",
        job(PYTORCH, {"Master": {"template": pod()}}, name=NAME),
        needs=[object_of("v1", "Service", f"{NAME}-master-0", spec={"ports": [{"port": 80}]})],
        why=Words('services "train-master-0" already exists', "delete the Service with that name"),
    ),
    BrokenJob(
        "The launcher of an MPIJob fails",
        mpi(manual_pod(FAILS, name="mpi"), pod(name="mpi"), runPolicy={"backoffLimit": 0}),
        pod_status=_status("Failed", ended(1, message="FileNotFoundError: /data/train.csv"), name="mpi"),
        why=Words("FileNotFoundError: /data/train.csv", f"rallypoint logs {NAME}-launcher"),
        run=Words("FileNotFoundError: /data/train.csv", LOG),
        exit_status=1,
    ),
    BrokenJob(
        "A worker of an MPIJob does not become ready",
        mpi(pod(name="mpi"), manual_pod(name="mpi"), launcherCreationPolicy="WaitForWorkersReady"),
        pod_status=waiting("ErrImagePull", 'image "train:1" not found', name="mpi"),
        why=Words('image "train:1" not found', "correct the image"),
    ),
    BrokenJob(
        "No operator serves the kind",
        job(MXNET, {"Worker": role(name=MXNET.container)}, name=NAME),
        why=Words("no operator has reconciled it", "--enable-scheme"),
    ),
    BrokenJob(
        "The job is deleted, and a finalizer holds it",
        {**pytorch(), "metadata": {"name": NAME, "finalizers": ["example.com/keep"]}},
        why=Words("being deleted; waits for its finalizers: example.com/keep", "must remove them"),
        is_deleted=True,
    ),
)


def _gang(queue: str) -> Object:
    policy = {"queue": queue, "minResources": {GPU: "8"}}
    return pytorch(runPolicy={"schedulingPolicy": policy})


def _queue(state: str, allocated: str = "0", capability: str = "64") -> Object:
    return object_of(
        "scheduling.volcano.sh/v1beta1",
        "Queue",
        "NAMESPACE",
        spec={"capability": {GPU: capability}},
        status={"state": state, "allocated": {GPU: allocated}},
    )


ENLARGE = "ask an administrator to create, open or enlarge the queue"
GANGS = (
    BrokenJob(
        "The queue of a gang does not exist",
        _gang("nowhere"),
        why=Words("queue nowhere does not exist", ENLARGE),
        is_gang=True,
    ),
    BrokenJob(
        "The queue of a gang is closed",
        _gang("NAMESPACE"),
        needs=[_queue("Closed")],
        why=Words("is Closed", ENLARGE),
        is_gang=True,
    ),
    BrokenJob(
        "The queue of a gang is full",
        _gang("NAMESPACE"),
        needs=[_queue("Open", "60")],
        why=Words("60 of 64 are in use", ENLARGE),
        is_gang=True,
    ),
    BrokenJob(
        "The queue of a gang is too small",
        _gang("NAMESPACE"),
        needs=[_queue("Open", capability="4")],
        why=Words("can never take it", ENLARGE),
        is_gang=True,
    ),
)

BROKEN_JOBS = (*REFUSED, *WAITING, *GANGS)
