"""Each defect that is seeded into planning is reported, and planning without one differs from itself in no state of a job."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from api.labels import CHECKPOINT_DIR
from api.labels import SERVICES as SERVICES_ANNOTATION
from api.meta import PODS, SERVICES
from controller.domain import Child, Deletion, Plan, Problem
from controller.kind import ReplicaKind
from controller.kinds import ALL
from controller.kinds.mpi.v1 import V1
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.kinds.pytorch import PYTORCH
from controller.shadow.compare import job_differences, without_own_fields
from controller.shadow.declared import Rule
from tests.support.builders import job_of, pytorch_job, template
from tests.support.in_memory_cluster import InMemoryCluster, run_policy, running_cluster
from tests.support.mpi import mpi_job, v1_job
from tests.support.shadow import (
    Defective,
    Mutation,
    body,
    condition,
    container,
    env,
    observed,
    status,
)

VOLUME = {"name": "data", "emptyDir": {}}
State = Callable[[], InMemoryCluster]


def running() -> InMemoryCluster:
    own = template(
        env=[{"name": "TOKEN", "value": "secret"}], volumeMounts=[{"name": "data", "mountPath": "/data"}]
    )
    own["metadata"] = {"annotations": {"team": "vision"}, "labels": {"team": "vision"}}
    own["spec"]["volumes"] = [VOLUME]
    return running_cluster(worker={"template": own})


def suspended() -> InMemoryCluster:
    cluster = running_cluster()
    run_policy(suspend=True)(cluster)
    cluster.settle()
    return cluster


def succeeded(**policy: Any) -> InMemoryCluster:
    cluster = running_cluster(run_policy=policy)
    cluster.set_phase("Succeeded", code=0)
    cluster.settle()
    return cluster


def mpi() -> InMemoryCluster:
    cluster = InMemoryCluster(mpi_job(), kind=V2BETA1)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    cluster.set_phase("Running", ready=True)
    cluster.wait(60)
    cluster.settle()
    cluster.launch()
    cluster.settle()
    return cluster


def mpi_v1() -> InMemoryCluster:
    cluster = InMemoryCluster(v1_job(), kind=V1)
    cluster.settle()
    cluster.set_phase("Running", ready=True)
    cluster.wait(60)
    cluster.settle()
    return cluster


def elastic() -> InMemoryCluster:
    metrics = [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }
    ]
    policy = {"minReplicas": 1, "maxReplicas": 4, "metrics": metrics}
    cluster = InMemoryCluster(pytorch_job(masters=None, elasticPolicy=policy))
    cluster.settle()
    cluster.set_phase("Running")
    cluster.settle()
    return cluster


@dataclass(frozen=True)
class Defect:
    """A mutation of planning for a job in one state, and the rule under which it is reported."""

    name: str
    rule: str
    mutate: Mutation
    state: State = running


def drop(field: str) -> Callable[[dict[str, Any]], object]:
    return lambda value: value.pop(field, None)


def without(kind: str, name: str) -> Mutation:
    return lambda plan, job, snapshot: replace(
        plan,
        create=tuple(child for child in plan.create if (child.resource.kind, child.name) != (kind, name)),
    )


def one_pod_more(plan: Plan, job: Any, snapshot: Any) -> Plan:
    return replace(plan, create=(*plan.create, Child(PODS, "train-worker-2", dict)))


def delete_running(plan: Plan, job: Any, snapshot: Any) -> Plan:
    return replace(plan, delete=tuple(Deletion(PODS, pod.name, pod.uid) for pod in snapshot.pods))


def delete_services(plan: Plan, job: Any, snapshot: Any) -> Plan:
    return replace(plan, delete=tuple(Deletion(SERVICES, row.name, row.uid) for row in snapshot.services))


def delete_job(plan: Plan, job: Any, snapshot: Any) -> Plan:
    return replace(plan, delete_job=True)


def counters(**counts: int) -> Mutation:
    return status(lambda wire: wire["replicaStatuses"]["Worker"].update(counts))


def no_condition(type_: str) -> Mutation:
    return status(
        lambda wire: wire.update(
            conditions=[own for own in wire.get("conditions") or () if own["type"] != type_]
        )
    )


def always_sets(type_: str, **fields: str) -> Mutation:
    return status(lambda wire: condition(wire, type_).update(fields))


DEFECTS = (
    Defect("a variable has another value", Rule.POD, body("Pod", env("MASTER_PORT", "1"))),
    Defect("a variable is missing", Rule.POD, body("Pod", env("WORLD_SIZE", None))),
    Defect("a variable is added", Rule.POD, body("Pod", env("EXTRA", "1"))),
    Defect("a variable of the user is lost", Rule.POD, body("Pod", env("TOKEN", None))),
    Defect(
        "a volume of the user is lost", Rule.POD, body("Pod", lambda pod: pod["spec"].pop("volumes", None))
    ),
    Defect("a mount of the user is lost", Rule.POD, body("Pod", container(drop("volumeMounts")))),
    Defect(
        "an annotation of the user is lost",
        Rule.POD,
        body("Pod", lambda pod: pod["metadata"].pop("annotations", None)),
    ),
    Defect(
        "a label of pods is missing",
        Rule.POD,
        body("Pod", lambda pod: pod["metadata"]["labels"].pop("training.kubeflow.org/job-role", None)),
    ),
    Defect(
        "a label of pods has another value",
        Rule.POD,
        body(
            "Pod", lambda pod: pod["metadata"]["labels"].update({"training.kubeflow.org/replica-index": "7"})
        ),
    ),
    Defect(
        "another container port",
        Rule.POD,
        body("Pod", container(lambda own: own["ports"][0].update(containerPort=1))),
    ),
    Defect("another image", Rule.POD, body("Pod", container(lambda own: own.update(image="img:2")))),
    Defect(
        "the init container is missing",
        Rule.POD,
        body("Pod", lambda pod: pod["spec"].pop("initContainers", None)),
    ),
    Defect(
        "another restart policy", Rule.POD, body("Pod", lambda pod: pod["spec"].update(restartPolicy="Never"))
    ),
    Defect("no restart policy", Rule.POD, body("Pod", lambda pod: pod["spec"].pop("restartPolicy"))),
    Defect("another scheduler", Rule.POD, body("Pod", lambda pod: pod["spec"].update(schedulerName="other"))),
    Defect(
        "no controller",
        Rule.POD,
        body("Pod", lambda pod: pod["metadata"]["ownerReferences"][0].pop("controller")),
    ),
    Defect(
        "another Service port",
        Rule.SERVICE,
        body("Service", lambda own: own["spec"]["ports"][0].update(port=1)),
    ),
    Defect(
        "another selector",
        Rule.SERVICE,
        body("Service", lambda own: own["spec"]["selector"].update({"training.kubeflow.org/job-name": "x"})),
    ),
    Defect(
        "a selector that is too wide",
        Rule.SERVICE,
        body("Service", lambda own: own["spec"]["selector"].pop("training.kubeflow.org/replica-index")),
    ),
    Defect(
        "a Service with an address",
        Rule.SERVICE,
        body("Service", lambda own: own["spec"].update(clusterIP="")),
    ),
    Defect("a Service is missing", Rule.CHILDREN, without("Service", "train-worker-1")),
    Defect("a pod is missing", Rule.CHILDREN, without("Pod", "train-worker-1")),
    Defect("a pod too many", Rule.CHILDREN, one_pod_more),
    Defect("running pods are deleted", Rule.DELETION, delete_running),
    Defect("Services of running pods are deleted", Rule.DELETION, delete_services),
    Defect("a running job fails", Rule.CONDITION, always_sets("Failed")),
    Defect("a running job succeeds", Rule.CONDITION, always_sets("Succeeded")),
    Defect("Running has another reason", Rule.CONDITION, always_sets("Running", reason="JobRunning")),
    Defect("Running is never set", Rule.CONDITION, no_condition("Running")),
    Defect("Created is never set", Rule.CONDITION, no_condition("Created")),
    Defect("a pod too few is counted", Rule.COUNTER, counters(active=1)),
    Defect("running pods count as failed", Rule.COUNTER, counters(failed=2)),
    Defect("no start time", Rule.TIME, status(drop("startTime"))),
    Defect(
        "a running job has a completion time",
        Rule.TIME,
        status(lambda wire: wire.update(completionTime="2026-01-01T12:00:00Z")),
    ),
    Defect("a suspended job gets pods", Rule.CHILDREN, one_pod_more, suspended),
    Defect("a suspended job is Running", Rule.CONDITION, always_sets("Running", status="True"), suspended),
    Defect("pods are deleted whatever the policy says", Rule.CLEANUP, delete_running, succeeded),
    Defect("a job is deleted before its TTL ends", Rule.EXPIRY, delete_job, succeeded),
    Defect("a finished job loses its completion time", Rule.TIME, status(drop("completionTime")), succeeded),
    Defect("a succeeded job is not Succeeded", Rule.CONDITION, no_condition("Succeeded"), succeeded),
    Defect(
        "the launcher has another command",
        Rule.LAUNCHER,
        body("Job", lambda job: job["spec"]["template"]["spec"]["containers"][0].update(command=["sleep"])),
        mpi,
    ),
    Defect(
        "the launcher has another back-off limit",
        Rule.LAUNCHER,
        body("Job", lambda job: job["spec"].update(backoffLimit=1)),
        mpi,
    ),
    Defect("the launcher is missing", Rule.CHILDREN, without("Job", "pi-launcher"), mpi),
    Defect(
        "a host is missing from the hostfile",
        Rule.SUPPORT,
        body("ConfigMap", lambda own: own["data"].update(hostfile="pi-worker-0\n")),
        mpi,
    ),
    Defect(
        "a host is listed that does not exist",
        Rule.SUPPORT,
        body("ConfigMap", lambda own: own["data"].update({"discover_hosts.sh": "echo pi-worker-7"})),
        mpi,
    ),
    Defect(
        "a key is missing from the Secret",
        Rule.SUPPORT,
        body("Secret", lambda own: own["data"].pop("ssh-publickey")),
        mpi,
    ),
    Defect(
        "a worker runs another command",
        Rule.POD,
        body("Pod", container(lambda own: own.update(command=["sshd", "-d"]))),
        mpi,
    ),
    Defect(
        "the launcher's account is another",
        Rule.POD,
        body("Pod", lambda pod: pod["spec"].update(serviceAccountName="x"), "hvd-launcher"),
        mpi_v1,
    ),
    Defect(
        "the launcher may do more",
        Rule.SUPPORT,
        body("RoleBinding", lambda own: own["subjects"].append({"kind": "Group", "name": "all"})),
        mpi_v1,
    ),
    Defect(
        "the autoscaler has another maximum",
        Rule.SUPPORT,
        body("HorizontalPodAutoscaler", lambda own: own["spec"].update(maxReplicas=9)),
        elastic,
    ),
)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_in_planning_is_reported(defect: Defect) -> None:
    cluster = defect.state()
    seen = observed(cluster, kind=Defective(cluster.kind, defect.mutate))

    assert {difference.rule for difference in job_differences(seen)} >= {defect.rule}


def test_a_job_that_is_refused_although_it_runs_is_reported() -> None:
    cluster = running()
    problem = Problem("spec.pytorchReplicaSpecs[Worker]", "Invalid value")
    refusing = Defective(cluster.kind, lambda plan, job, snapshot: plan, [problem])
    (difference,) = job_differences(observed(cluster, kind=refusing))

    assert (difference.rule, difference.theirs) == (Rule.VALIDATION, "started")
    assert problem.field in difference.ours


STATES: dict[str, State] = {
    "running": running,
    "suspended": suspended,
    "succeeded": succeeded,
    "succeeded, its pods deleted": lambda: succeeded(cleanPodPolicy="All"),
    "elastic": elastic,
    "MPIJob of v2beta1": mpi,
    "MPIJob of v1": mpi_v1,
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_planning_does_not_differ_from_itself(state: State) -> None:
    assert job_differences(observed(state())) == []


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
@pytest.mark.parametrize(
    "kind", [kind for kind in ALL if isinstance(kind, ReplicaKind)], ids=lambda kind: kind.resource.kind
)
def test_planning_of_no_kind_differs_from_itself(kind: ReplicaKind[Any], phase: str) -> None:
    roles: dict[str, Any] = {kind.role_names[0]: {}, kind.role_names[-1]: {}}
    cluster = InMemoryCluster(job_of(kind, **roles), kind=kind)
    cluster.settle()
    cluster.set_phase(phase, code={"Succeeded": 0, "Failed": 1}.get(phase))
    for _ in range(3):
        cluster.settle()
        cluster.wait(600)

    assert job_differences(observed(cluster)) == []


@pytest.mark.parametrize("kind", [PYTORCH, V2BETA1], ids=["PyTorchJob", "MPIJob"])
def test_fields_that_only_this_operator_has_make_no_difference(kind: Any) -> None:
    """The other operator has made the children without them."""
    own = {"failurePolicy": {"rules": [{"action": "RestartJob"}]}, "wallClock": True}
    plain, given = (
        (pytorch_job(), pytorch_job(run_policy=own))
        if kind is PYTORCH
        else (mpi_job(), mpi_job(runPolicy=own))
    )
    cluster = InMemoryCluster(plain, kind=kind)
    cluster.settle()
    found = observed(cluster)
    given = given.model_copy(update={"status": cluster.status})
    annotated = given.metadata.model_copy(
        update={"annotations": {CHECKPOINT_DIR: "/checkpoints", SERVICES_ANNOTATION: "per-job"}}
    )
    given = given.model_copy(update={"metadata": annotated})

    assert job_differences(replace(found, job=given))
    assert job_differences(replace(found, job=without_own_fields(given))) == []


def test_what_admission_adds_to_pods_is_no_difference() -> None:
    seen = observed(running())
    for (kind, _), child in seen.children.items():
        if kind == "Pod":
            add_as_admission_does(child)

    assert job_differences(seen) == []


def add_as_admission_does(pod: dict[str, Any]) -> None:
    mount = {
        "name": "kube-api-access-x",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    spec = pod["spec"]
    spec.update(
        nodeName="node-0",
        priority=0,
        serviceAccountName="default",
        serviceAccount="default",
        preemptionPolicy="PreemptLowerPriority",
        tolerations=[
            {
                "key": f"node.kubernetes.io/{name}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for name in ("not-ready", "unreachable")
        ],
    )
    spec.setdefault("volumes", []).append({"name": "kube-api-access-x", "projected": {"sources": []}})
    for each in (*spec["containers"], *spec.get("initContainers", ())):
        each.setdefault("volumeMounts", []).append(mount)
        each.setdefault("resources", {"requests": {"cpu": "100m"}})
        each["terminationMessagePath"] = "/dev/termination-log"
    spec["containers"].append({"name": "istio-proxy", "image": "proxy:1"})
    pod["metadata"]["labels"]["service.istio.io/canonical-name"] = "train"
    pod["metadata"].setdefault("annotations", {})["kubernetes.io/limit-ranger"] = "cpu request"


def test_no_difference_shows_what_a_user_has_written_into_the_environment() -> None:
    seen = observed(running(), kind=Defective(PYTORCH, body("Pod", env("TOKEN", "other"))))
    found = job_differences(seen)

    assert found
    assert not [difference for difference in found if "secret" in difference.ours + difference.theirs]
