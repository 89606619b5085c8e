"""What a Workload says about a job, and what its admission adds to the job and takes away again."""

from typing import Any

import msgspec
import pytest

from api.workloads import CLUSTER_QUEUE, LOCAL_QUEUE, POD_SET, TOPOLOGY, WORKLOAD
from controller.kinds.tensorflow import TENSORFLOW
from controller.kueue import pod_sets
from controller.kueue.pod_sets import QueuedJob, Unqueueable
from controller.reconcile.jobs import job_from_json
from rallypoint.local.apiserver.patches.jsonpatch import merge
from tests.support.builders import UID, template
from tests.support.queued_jobs import queued_job, workload_of

ADMITTED = ("QuotaReserved", "Admitted")
SPOT: dict[str, Any] = {
    "nodeLabels": {"instance": "spot"},
    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
}
OWN: dict[str, Any] = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "mine"}},
    "spec": {
        "containers": [{"name": "pytorch", "image": "img"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "old", "operator": "Exists"}],
    },
}
ROLES = {"Master": {"template": OWN}, "Worker": {"template": OWN}}


def body_of(job: QueuedJob) -> dict[str, Any]:
    return pod_sets.workload_body(job, {"priority": 5})


def spec_after(job: QueuedJob, change: dict[str, Any]) -> dict[str, Any]:
    """The job's spec after a merge patch."""
    found: dict[str, Any] = merge({"spec": job.spec}, {"spec": change["spec"]})["spec"]
    return found


def changed(job: QueuedJob, change: dict[str, Any]) -> QueuedJob:
    meta = msgspec.json.decode(job.row.metadata)
    body = {"metadata": meta, "spec": spec_after(job, change)}
    return QueuedJob(job.kind, job_from_json(msgspec.json.encode(body)))


def test_a_workload_describes_its_job() -> None:
    job = queued_job(
        roles=ROLES,
        labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"},
        annotations={"provreq.kueue.x-k8s.io/timeout": "5m", "other": "x"},
    )

    body = body_of(job)

    meta, spec = body["metadata"], body["spec"]
    assert meta["labels"] == {"kueue.x-k8s.io/job-uid": UID}
    assert meta["annotations"].keys() == {"provreq.kueue.x-k8s.io/timeout", "training.kubeflow.org/pod-sets"}
    assert meta["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "PyTorchJob",
        "train",
        UID,
        True,
    )
    assert (spec["queueName"], spec["priority"], spec["maximumExecutionTimeSeconds"]) == ("main", 5, 60)
    assert [(item["name"], item["count"]) for item in spec["podSets"]] == [("master", 1), ("worker", 2)]
    assert {item["topologyRequest"]["podIndexLabel"] for item in spec["podSets"]} == {
        "training.kubeflow.org/replica-index"
    }
    assert spec["podSets"][0]["template"] == OWN


def test_the_name_is_that_which_kueue_gives() -> None:
    """tests/schedulers compares it with those that the real one gives."""
    assert pod_sets.workload_name(queued_job().kind, queued_job().row) == "pytorchjob-train-d1f25"


def test_the_roles_of_a_tfjob_are_in_the_order_of_kueue() -> None:
    roles = {role: {"template": template("tensorflow")} for role in ("Worker", "Evaluator", "PS", "Chief")}
    metadata = {"name": "train", "namespace": "ml", "uid": UID}
    row = job_from_json(msgspec.json.encode({"metadata": metadata, "spec": {"tfReplicaSpecs": roles}}))

    assert [role.name for role in QueuedJob(TENSORFLOW, row).roles] == ["chief", "ps", "worker", "evaluator"]


def test_of_two_variables_with_one_name_the_last_counts() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    job = queued_job(roles={"Worker": {"template": template(env=env)}})

    (container,) = job.pod_sets[1]["template"]["spec"]["containers"]

    assert container["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {}),
        ({"podset-required-topology": "rack"}, {"required": "rack"}),
        ({"podset-preferred-topology": "block"}, {"preferred": "block"}),
        (
            {"podset-required-topology": "rack", "podset-preferred-topology": "block"},
            {"required": "rack"},
        ),
        ({"podset-unconstrained-topology": "true"}, {"unconstrained": True}),
        (
            {"podset-slice-required-topology": "host", "podset-slice-size": "2"},
            {"podSetSliceRequiredTopology": "host", "podSetSliceSize": 2},
        ),
        (
            {"podset-required-topology": "rack", "podset-group-name": "all"},
            {"required": "rack", "podSetGroupName": "all"},
        ),
        ({"podset-group-name": "all"}, {}),
    ],
)
def test_annotations_of_a_template_request_a_topology(
    annotations: dict[str, str], expected: dict[str, Any]
) -> None:
    keys = {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}
    own = {**template(), "metadata": {"annotations": keys}}

    request = queued_job(roles={"Worker": {"template": own}}).pod_sets[1]["topologyRequest"]

    assert request == {"podIndexLabel": "training.kubeflow.org/replica-index", **expected}


@pytest.mark.parametrize(
    ("key", "value"), [("podset-unconstrained-topology", "maybe"), ("podset-slice-size", "many")]
)
def test_an_invalid_topology_request_names_the_annotation(key: str, value: str) -> None:
    keys = {f"kueue.x-k8s.io/{key}": value, "kueue.x-k8s.io/podset-slice-required-topology": "rack"}
    own = {**template(), "metadata": {"annotations": keys}}

    with pytest.raises(Unqueueable, match=rf"Worker.template.metadata.annotations: kueue.x-k8s.io/{key}"):
        _ = queued_job(roles={"Worker": {"template": own}}).pod_sets


def test_an_admission_adds_its_flavors_to_the_templates() -> None:
    job = queued_job(roles=ROLES)
    workload = workload_of(job, *ADMITTED)

    after = spec_after(job, pod_sets.admit(job, workload, {"spot": SPOT}))

    assert after["runPolicy"]["suspend"] is False
    worker = after["pytorchReplicaSpecs"]["Worker"]["template"]
    assert worker["metadata"]["labels"] == {
        "team": "vision",
        POD_SET: "worker",
        LOCAL_QUEUE: "main",
        CLUSTER_QUEUE: "cluster",
    }
    assert worker["metadata"]["annotations"] == {"note": "mine", WORKLOAD: workload.name}
    assert worker["spec"]["nodeSelector"] == {"disk": "ssd", "instance": "spot"}
    assert worker["spec"]["tolerations"] == [*OWN["spec"]["tolerations"], *SPOT["tolerations"]]
    assert "schedulingGates" not in worker["spec"]


@pytest.mark.parametrize("roles", [ROLES, {}], ids=["with fields of the user", "without"])
def test_a_suspension_takes_away_what_the_admission_added(roles: dict[str, Any]) -> None:
    job = queued_job(roles=roles)
    workload = workload_of(job, *ADMITTED)
    started = changed(job, pod_sets.admit(job, workload, {"spot": SPOT}))

    again = changed(started, pod_sets.suspend(started, workload))

    assert again.policy == job.policy
    assert again.fingerprint == job.fingerprint


def test_only_changes_of_templates_are_bound_to_a_version_of_the_job() -> None:
    job = queued_job(suspend=False)
    workload = workload_of(job, *ADMITTED)

    assert "resourceVersion" not in pod_sets.suspend(job, None)["metadata"]
    started = pod_sets.admit(job, workload, {"spot": SPOT})
    assert started["metadata"]["resourceVersion"] == "7"
    assert pod_sets.suspend(changed(job, started), workload)["metadata"]["resourceVersion"]


def test_without_a_workload_only_the_marks_go() -> None:
    job = queued_job(roles=ROLES)
    started = changed(job, pod_sets.admit(job, workload_of(job, *ADMITTED), {"spot": SPOT}))

    after = spec_after(started, pod_sets.suspend(started, None))["pytorchReplicaSpecs"]["Worker"]["template"]

    assert after["metadata"] == OWN["metadata"]
    assert after["spec"]["nodeSelector"] == {"disk": "ssd", "instance": "spot"}


def test_changes_beside_an_admission_stay() -> None:
    job = queued_job(roles=ROLES)
    workload = workload_of(job, *ADMITTED)
    started = changed(job, pod_sets.admit(job, workload, {"spot": SPOT}))
    larger = changed(started, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 9}}}})

    again = spec_after(larger, pod_sets.suspend(larger, workload))

    assert again["pytorchReplicaSpecs"]["Worker"]["replicas"] == 9


def test_the_shape_is_that_of_the_job_with_and_without_its_admission() -> None:
    job = queued_job(roles=ROLES)
    workload = workload_of(job, *ADMITTED)
    started = changed(job, pod_sets.admit(job, workload, {"spot": SPOT}))

    assert started.has_shape_of(workload)
    assert started.fingerprint != job.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"template": {"spec": {"containers": [{"name": "pytorch", "image": "other"}]}}},
        {"template": {"spec": {"initContainers": [{"name": "first", "image": "img"}]}}},
    ],
    ids=["count", "container", "init container"],
)
def test_the_shape_is_that_of_the_pods(change: dict[str, Any]) -> None:
    job = queued_job()

    other = changed(job, {"spec": {"pytorchReplicaSpecs": {"Worker": change}}})

    assert not other.has_shape_of(workload_of(job))


def test_of_kueues_own_workload_only_the_counts_are_compared() -> None:
    job = queued_job()
    own = workload_of(job, fingerprint="")

    assert queued_job(roles={"Worker": {"template": template(image="x")}}).has_shape_of(own)
    assert not queued_job(roles={"Worker": {"replicas": 3}}).has_shape_of(own)


def test_pods_of_an_assigned_topology_are_gated() -> None:
    job = queued_job()
    assignments = [
        {"name": name, "flavors": {"cpu": "spot"}, "topologyAssignment": {"levels": ["rack"], "slices": []}}
        for name in ("master", "worker")
    ]
    workload = workload_of(
        job, *ADMITTED, admission={"clusterQueue": "a.b", "podSetAssignments": assignments}
    )

    after = spec_after(job, pod_sets.admit(job, workload, {"spot": {}}))
    worker = after["pytorchReplicaSpecs"]["Worker"]["template"]

    assert worker["spec"]["schedulingGates"] == [{"name": TOPOLOGY}]
    assert worker["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"
    assert CLUSTER_QUEUE not in worker["metadata"]["labels"]  # it is no label of DNS


def test_admission_checks_add_to_the_templates() -> None:
    job = queued_job()
    update = {"name": "worker", "labels": {"pool": "new"}, "nodeSelector": {"pool": "new"}}
    checks = [{"name": "provision", "state": "Ready", "podSetUpdates": [update]}]

    workload = workload_of(job, *ADMITTED, admissionChecks=checks)
    roles = spec_after(job, pod_sets.admit(job, workload, {"spot": {}}))["pytorchReplicaSpecs"]

    assert roles["Worker"]["template"]["spec"]["nodeSelector"] == {"pool": "new"}
    assert "nodeSelector" not in roles["Master"]["template"]["spec"]


def test_a_template_that_contradicts_a_flavor_is_named() -> None:
    own = {**template(), "metadata": {}}
    own["spec"] = {**own["spec"], "nodeSelector": {"instance": "reserved"}}
    job = queued_job(roles={"Worker": {"template": own}})

    with pytest.raises(Unqueueable, match=r"template of Worker .* nodeSelector instance='spot'"):
        pod_sets.admit(job, workload_of(job, *ADMITTED), {"spot": SPOT})


def test_marks_of_another_admission_are_no_contradiction() -> None:
    own = {**template(), "metadata": {"labels": {POD_SET: "other"}, "annotations": {WORKLOAD: "other"}}}
    job = queued_job(roles={"Worker": {"template": own}})
    workload = workload_of(job, *ADMITTED)

    roles = spec_after(job, pod_sets.admit(job, workload, {"spot": {}}))["pytorchReplicaSpecs"]

    assert roles["Worker"]["template"]["metadata"]["labels"][POD_SET] == "worker"
    assert job.pod_sets[1]["template"]["metadata"] == {}


def test_the_priority_class_is_that_of_the_scheduling_policy_or_of_the_first_template() -> None:
    named = template()
    named["spec"]["priorityClassName"] = "low"
    roles = {"Worker": {"template": named}}

    assert queued_job().priority_class == ""
    assert queued_job(roles=roles).priority_class == "low"
    assert queued_job(roles=roles, schedulingPolicy={"priorityClass": "high"}).priority_class == "high"
