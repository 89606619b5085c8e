"""What keeps a job from ever running on the node of a run, with the field and the next step."""

from typing import Any

import pytest

from rallypoint.cli.blockers import KeysOf, blockers, has_rights, missing_objects


def node(**allocatable: str) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "1000", **allocatable}
    metadata = {"name": "local", "labels": {"kubernetes.io/os": "linux"}}
    return {"metadata": metadata, "status": {"allocatable": amounts}}


def role(replicas: int | None = 1, gpus: int = 0, cpu: str = "0", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": cpu}}}
    counted = {} if replicas is None else {"replicas": replicas}
    return {**counted, "template": {"spec": {"containers": [container], **spec}}}


def job(spec: dict[str, Any] | None = None, **roles: Any) -> dict[str, Any]:
    return {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": roles, **(spec or {})}}


FOUR = node(**{"nvidia.com/gpu": "4"})
WORKER = "spec.pytorchReplicaSpecs.Worker.template.spec"


@pytest.mark.parametrize(
    ("manifest", "field", "reason"),
    [
        pytest.param(
            job({"runPolicy": {"suspend": True}}, Master=role()),
            "spec.runPolicy.suspend",
            "the job is suspended, and nobody resumes it in this run; remove the field",
            id="suspended",
        ),
        pytest.param(
            job({"suspend": True}, Master=role()),
            "spec.suspend",
            "the job is suspended",
            id="without a policy",
        ),
        pytest.param(
            job({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, Master=role()),
            "spec.runPolicy.managedBy",
            "kueue.x-k8s.io/multikueue does not run here; remove the field",
            id="left to another controller",
        ),
        pytest.param(
            job(Worker=role(gpus=8)),
            WORKER,
            "a pod requests 8 nvidia.com/gpu, and this machine has 4; request less",
            id="more GPUs in a pod",
        ),
        pytest.param(
            job(Master=role(None, gpus=1), Worker=role(4, gpus=1)),
            "spec.pytorchReplicaSpecs",
            "all pods together request 5 nvidia.com/gpu, and this machine has 4; use fewer replicas",
            id="more GPUs in all pods",
        ),
        pytest.param(
            job({"elasticPolicy": {"minReplicas": 5}}, Worker=role(8, gpus=1)),
            "spec.pytorchReplicaSpecs",
            "all pods together request 5 nvidia.com/gpu",
            id="more GPUs in the fewest pods of an elastic job",
        ),
        pytest.param(
            job(Worker=role(cpu="2500m")),
            WORKER,
            "a pod requests 2500m cpu, and this machine has 2",
            id="cores",
        ),
        pytest.param(
            job(Worker=role(schedulerName="volcano")),
            f"{WORKER}.schedulerName",
            "no scheduler volcano",
            id="scheduler",
        ),
        pytest.param(
            job(Worker=role(nodeSelector={"gpu": "h100"})),
            WORKER,
            "this node is excluded: node(s) didn't match Pod's node affinity/selector; add the labels",
            id="labels",
        ),
        pytest.param(
            job(Worker=role(schedulingGates=[{"name": "x"}])),
            f"{WORKER}.schedulingGates",
            "nobody removes the scheduling gates",
            id="scheduling gates",
        ),
        pytest.param(
            job(Worker=role(nodeName="a")), f"{WORKER}.nodeName", "the only node is local", id="another node"
        ),
    ],
)
def test_a_job_that_can_never_run(manifest: dict[str, Any], field: str, reason: str) -> None:
    ((found, text),) = blockers(manifest, FOUR)

    assert found == field
    assert text.startswith(reason)


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(job(Master=role(gpus=1), Worker=role(3, gpus=1)), id="that fills the node"),
        pytest.param(job(Worker=role(8, cpu="1")), id="whose pods can run one after the other"),
        pytest.param(
            {"kind": "TFJob", "spec": {"tfReplicaSpecs": {"Worker": role(8, gpus=1)}}},
            id="of a kind whose pods do not wait for each other",
        ),
        pytest.param(job({"elasticPolicy": {"minReplicas": 2}}, Worker=role(8, gpus=1)), id="elastic"),
        pytest.param(job(Master=role(), Worker=role(0, gpus=8)), id="without the replicas that do not fit"),
        pytest.param(
            job({"runPolicy": {"suspend": False, "managedBy": "kubeflow.org/training-operator"}}), id="ours"
        ),
        pytest.param(
            {"kind": "MPIJob", "spec": {"mpiReplicaSpecs": {"Launcher": {}, "Worker": None}}}, id="incomplete"
        ),
        pytest.param({"kind": "MPIJob", "spec": {}}, id="empty"),
    ],
)
def test_a_job_that_can_run(manifest: dict[str, Any]) -> None:
    assert list(blockers(manifest, FOUR)) == []


def test_all_members_of_a_gang_fit_together_or_none_starts() -> None:
    workers = job(Worker=role(8, cpu="1"))
    few = job({"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}, Worker=role(8, cpu="1"))
    elastic = job({"elasticPolicy": {"minReplicas": 2}}, Worker=role(8, cpu="1"))
    (found,) = blockers(workers, FOUR, "volcano")

    assert found[1].startswith("all pods together request 8 cpu, and this machine has 2")
    assert list(blockers(few, FOUR, "volcano")) == []
    assert list(blockers(elastic, FOUR, "volcano")) == [found]
    assert list(blockers(job(Worker=role(schedulerName="volcano")), FOUR, "volcano")) == []


def test_memory_is_in_gibibytes() -> None:
    worker = role()
    worker["template"]["spec"]["containers"][0]["resources"] = {"requests": {"memory": "6Gi"}}
    (found,) = blockers(job(Worker=worker), FOUR)

    assert "a pod requests 6.0 GiB memory, and this machine has 4.0 GiB" in found[1]


NEEDY: dict[str, Any] = {
    "serviceAccountName": "reader",
    "containers": [
        {
            "name": "c",
            "envFrom": [
                {"configMapRef": {"name": "all"}},
                {"secretRef": {"name": "maybe", "optional": True}},
            ],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }
    ],
    "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "init"}}]}],
    "volumes": [
        {"name": "a", "configMap": {"name": "files"}},
        {"name": "b", "secret": {"secretName": "keys"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {
            "name": "d",
            "projected": {
                "sources": [{"configMap": {"name": "kube-root-ca.crt"}}, {"secret": {"name": "p"}}]
            },
        },
        {"name": "e", "emptyDir": {}},
    ],
}


def test_objects_that_nobody_creates() -> None:
    manifest = job(Master={"template": {"spec": NEEDY}}, Worker={"replicas": 0, "template": {"spec": NEEDY}})
    existing: KeysOf = {("ConfigMap", "all"): [], ("Secret", "keys"): []}
    found = list(missing_objects(manifest, existing))

    assert {field for field, _ in found} == {"spec.pytorchReplicaSpecs.Master.template.spec"}
    assert [reason.split(" does not exist")[0] for _, reason in found] == [
        'serviceaccount "reader"',
        'configmap "init"',
        'secret "one"',
        'configmap "files"',
        'persistentvolumeclaim "data"',
        'secret "p"',
    ]


def test_what_the_operator_creates_for_an_mpi_job_is_not_missing() -> None:
    hosts = {"containers": [{"name": "c"}], "volumes": [{"name": "h", "configMap": {"name": "pi-config"}}]}
    manifest = {
        "metadata": {"name": "pi"},
        "spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": hosts}}}},
    }

    assert list(missing_objects(manifest, {})) == []


def test_keys_that_nobody_adds() -> None:
    env = [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": "settings", "key": key, **more}}}
        for name, key, more in (("A", "there", {}), ("B", "env", {}), ("C", "maybe", {"optional": True}))
    ]
    projected = {"sources": [{"secret": {"name": "keys", "items": [{"key": "projected", "path": "p"}]}}]}
    volumes = [
        {"name": "a", "configMap": {"name": "settings", "items": [{"key": "item", "path": "p"}]}},
        {"name": "b", "projected": projected},
        {"name": "c", "secret": {"secretName": "keys"}},
    ]
    spec = {"containers": [{"name": "c", "env": env}], "volumes": volumes}
    existing: KeysOf = {("ConfigMap", "settings"): ["there"], ("Secret", "keys"): ["there"]}
    found = missing_objects(job(Worker={"template": {"spec": spec}}), existing)

    assert [reason.split(", and nobody")[0] for _, reason in found] == [
        'configmap "settings" has no key "env"',
        'configmap "settings" has no key "item"',
        'secret "keys" has no key "projected"',
    ]


@pytest.mark.parametrize(
    ("kind", "bound", "subject", "expected"),
    [
        pytest.param(
            "RoleBinding", "team", {"kind": "ServiceAccount", "name": "default"}, True, id="its account"
        ),
        pytest.param(
            "RoleBinding", "team", {"kind": "ServiceAccount", "name": "other"}, False, id="another account"
        ),
        pytest.param(
            "RoleBinding",
            "else",
            {"kind": "ServiceAccount", "name": "default"},
            False,
            id="another namespace",
        ),
        pytest.param(
            "ClusterRoleBinding",
            "team",
            {"kind": "ServiceAccount", "name": "default", "namespace": "else"},
            False,
            id="an account of another namespace",
        ),
        pytest.param(
            "ClusterRoleBinding",
            "team",
            {"kind": "Group", "name": "system:serviceaccounts:team"},
            True,
            id="its group",
        ),
    ],
)
def test_a_binding_that_gives_rights_to_a_job(
    kind: str, bound: str, subject: dict[str, Any], expected: bool
) -> None:
    binding = {"kind": kind, "subjects": [subject]}

    assert has_rights(job(Worker=role()), "team", binding, bound) is expected
