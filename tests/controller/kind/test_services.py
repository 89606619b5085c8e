"""The names of pods in the environment of their job, and the Services that make these names resolve."""

import re
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from api.services import ServiceMode
from controller.domain import Present
from controller.kind import Options, ReplicaKind
from controller.kind.pods import job_service_ports
from controller.kinds import ALL
from controller.kinds.jax import JAX
from controller.kinds.mxnet import MXNET
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST
from tests.support.builders import job_of, template

KINDS = [kind for kind in ALL if isinstance(kind, ReplicaKind)]
TWO = {"replicas": 2}
NAME = re.compile(r"\btrain-[a-z]+-[0-9]+\b(?:\.[a-z0-9-]+)*")


def whole(kind: ReplicaKind[Any], **fields: Any) -> Any:
    """A job with two pods in each role that may have them; the kind accepts it."""
    roles: dict[str, Any] = {name: {} if name in kind.single_roles else dict(TWO) for name in kind.role_names}
    for name in kind.alternative_roles[1:]:
        del roles[name]
    return job_of(kind, **roles, **fields)


def children(
    job: Any, kind: ReplicaKind[Any], mode: str, **options: Any
) -> dict[str, dict[str, dict[str, Any]]]:
    """The bodies of the pods and Services, by kind and name."""
    found: dict[str, dict[str, dict[str, Any]]] = {"Pod": {}, "Service": {}}
    given = Options(services=ServiceMode(mode), **options)
    for _, _, child in kind.wanted(job, kind.roles(job), given, Present()):
        found[child.resource.kind][child.name] = child.body()
    return found


def named(pod: Mapping[str, Any]) -> set[str]:
    """The names of pods of the job in the variables and commands of a pod."""
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    return set(
        NAME.findall(orjson.dumps([[each.get("env"), each.get("command")] for each in containers]).decode())
    )


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)


@every_kind
@pytest.mark.parametrize("elastic", [False, True], ids=["static", "elastic"])
def test_with_services_for_addressed_replicas_all_names_resolve(
    kind: ReplicaKind[Any], elastic: bool
) -> None:
    fields: dict[str, Any] = {}
    if elastic and kind is PYTORCH:
        fields = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}
    if elastic and kind is TENSORFLOW:
        fields = {"enableDynamicWorker": True}
    made = children(whole(kind, **fields), kind, "addressed")

    hosts = {name.partition(".")[0] for pod in made["Pod"].values() for name in named(pod)}

    assert hosts
    assert hosts <= made["Service"].keys()


@every_kind
def test_with_one_service_all_names_are_in_its_subdomain_except_a_pods_own(kind: ReplicaKind[Any]) -> None:
    made = children(whole(kind), kind, "per-job")

    assert made["Service"].keys() == {"train"}
    for name, pod in made["Pod"].items():
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (name, "train")
        for host in named(pod) - {name}:
            first, _, rest = host.partition(".")
            assert first in made["Pod"]
            assert rest.split(".")[0] == "train"


@every_kind
def test_the_service_of_a_job_selects_its_pods_ready_or_not(kind: ReplicaKind[Any]) -> None:
    made = children(whole(kind), kind, "per-job")

    spec = made["Service"]["train"]["spec"]

    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    for pod in made["Pod"].values():
        assert spec["selector"].items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("kind", "roles", "services"),
    [
        pytest.param(PYTORCH, {"Master": {}, "Worker": TWO}, ["train-master-0"], id="the master"),
        pytest.param(
            PYTORCH,
            {"Worker": TWO, "elasticPolicy": {}},
            ["train-worker-0", "train-worker-1"],
            id="all of an elastic PyTorchJob, which chooses its first at run time",
        ),
        pytest.param(
            PYTORCH, {"Worker": TWO}, ["train-worker-0", "train-worker-1"], id="all without a master"
        ),
        pytest.param(JAX, {"Worker": TWO}, ["train-worker-0"], id="JAX's coordinator"),
        pytest.param(PADDLE, {"Worker": TWO}, ["train-worker-0"], id="Paddle's first trainer"),
        pytest.param(PADDLE, {"Master": TWO, "Worker": TWO}, ["train-master-0"], id="Paddle's first server"),
        pytest.param(
            XGBOOST,
            {"Master": {}, "Worker": TWO},
            ["train-master-0", "train-worker-0", "train-worker-1"],
            id="all of an XGBoostJob, because WORKER_ADDRS names them",
        ),
        pytest.param(XGBOOST, {"Master": {}}, ["train-master-0"], id="an XGBoostJob without workers"),
        pytest.param(
            TENSORFLOW, {"Worker": {}}, [], id="none of a TFJob with one pod, which has no TF_CONFIG"
        ),
        pytest.param(
            TENSORFLOW,
            {"Chief": {}, "PS": {}, "Worker": {}, "enableDynamicWorker": True},
            ["train-ps-0", "train-worker-0"],
            id="what a sparse TF_CONFIG names",
        ),
        pytest.param(
            MXNET,
            {"Scheduler": {}, "Server": {}, "Worker": {}},
            ["train-scheduler-0", "train-server-0", "train-worker-0"],
            id="all of an MXJob, because MX_CONFIG names them",
        ),
    ],
)
def test_services_for_addressed_replicas(
    kind: ReplicaKind[Any], roles: dict[str, Any], services: list[str]
) -> None:
    assert list(children(job_of(kind, **roles), kind, "addressed")["Service"]) == services


@every_kind
def test_only_one_service_per_job_changes_the_pods(kind: ReplicaKind[Any]) -> None:
    job = whole(kind)

    assert children(job, kind, "addressed")["Pod"] == children(job, kind, "per-replica")["Pod"]


def variable(pod: Mapping[str, Any], name: str) -> str:
    (value,) = (each["value"] for each in pod["spec"]["containers"][0]["env"] if each["name"] == name)
    return str(value)


def test_the_master_of_a_job_with_one_service_knows_itself_by_its_host_name() -> None:
    pods = children(whole(PYTORCH), PYTORCH, "per-job")["Pod"]

    assert variable(pods["train-master-0"], "MASTER_ADDR") == "train-master-0"
    assert variable(pods["train-worker-0"], "MASTER_ADDR") == "train-master-0.train"


def test_a_master_on_the_network_of_its_node_knows_itself_by_dns() -> None:
    on_node = {"template": {"spec": {**template()["spec"], "hostNetwork": True}}}
    job = job_of(PYTORCH, Master=on_node, Worker={})

    pods = children(job, PYTORCH, "per-job")["Pod"]

    assert variable(pods["train-master-0"], "MASTER_ADDR") == "train-master-0.train"


@pytest.mark.parametrize(
    ("host", "first", "second"),
    [
        pytest.param(None, "train-worker-0", "train-worker-0.train", id="the first worker by default"),
        pytest.param(
            "train-worker-1", "train-worker-1.train", "train-worker-1", id="another worker by its name"
        ),
        pytest.param("etcd.ops", "etcd.ops", "etcd.ops", id="a host outside of the job"),
    ],
)
def test_the_rendezvous_host_of_an_elastic_job_with_one_service(
    host: str | None, first: str, second: str
) -> None:
    policy = {"rdzvHost": host, "rdzvPort": 29400} if host else {"rdzvPort": 29400}
    pods = children(job_of(PYTORCH, Worker=TWO, elasticPolicy=policy), PYTORCH, "per-job")["Pod"]

    found = [variable(pods[f"train-worker-{at}"], "PET_RDZV_ENDPOINT") for at in range(2)]

    assert found == [f"{first}:29400", f"{second}:29400"]


def test_addresses_of_a_tf_config_name_the_service_of_the_job() -> None:
    job = job_of(TENSORFLOW, Worker=TWO)

    pods = children(job, TENSORFLOW, "per-job", cluster_domain="cluster.local")["Pod"]
    config = orjson.loads(variable(pods["train-worker-0"], "TF_CONFIG"))

    assert config["cluster"]["worker"][1] == "train-worker-1.train.ml.svc.cluster.local:2222"


def test_the_service_of_a_job_has_the_ports_of_all_roles() -> None:
    def role(*ports: tuple[str, int]) -> dict[str, Any]:
        given = [{"name": name, "containerPort": number} for name, number in ports]
        return {"template": template("tensorflow", ports=given)}

    job = job_of(
        TENSORFLOW, PS=role(("tfjob-port", 2222), ("metrics", 9000)), Worker=role(("tfjob-port", 2223))
    )

    assert job_service_ports(TENSORFLOW, TENSORFLOW.roles(job)) == [
        {"name": "tfjob-port", "port": 2222},
        {"name": "metrics", "port": 9000},
        {"name": "tfjob-port-tcp-2223", "port": 2223},
    ]
