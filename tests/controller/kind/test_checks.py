"""Validation before the first pod, with the messages of the original's webhook."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from controller.kind import Options, ReplicaKind, checks
from controller.kinds.jax import JAX
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST
from tests.support.builders import job_of, pytorch_job, template

MAP = "spec.pytorchReplicaSpecs"
DNS = "should match: a DNS-1035 label"


def problems(name: str = "train", options: Options | None = None, **fields: Any) -> list[str]:
    return [str(problem) for problem in PYTORCH.problems(pytorch_job(name, **fields), options or Options())]


def containers(*given: dict[str, Any]) -> dict[str, Any]:
    return {"template": {"spec": {"containers": list(given)}}}


def test_a_minimal_job_has_no_problems() -> None:
    assert problems() == []


@pytest.mark.parametrize("name", ["a", "a-1", "train", "x" * 54])
def test_dns_labels_are_valid_names(name: str) -> None:
    assert problems(name) == []


@pytest.mark.parametrize("name", ["", "1st", "Train", "a.b", "a_b", "a-", "-a", "tränen", "a" * 64])
def test_other_names_are_invalid(name: str) -> None:
    (problem,) = problems(name)

    assert problem.startswith(f'metadata.name: Invalid value: "{name}": {DNS}')


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"pytorchReplicaSpecs": None}, [f"{MAP}: Required value: must be required"], id="no replica map"
        ),
        pytest.param(
            {"pytorchReplicaSpecs": {}}, [f"{MAP}: Required value: must be required"], id="an empty map"
        ),
        pytest.param(
            {"pytorchReplicaSpecs": {"Chief": {}}},
            [f'{MAP}[Chief]: Unsupported value: "Chief": supported values: "Master", "Worker"'],
            id="an unknown role",
        ),
        pytest.param(
            {"pytorchReplicaSpecs": {"Worker": {"template": template()}, "worker": {}}},
            [
                f'{MAP}[worker]: Duplicate value: "worker"',
                f"{MAP}[Worker].template.spec.containers: Required value: must be specified",
                f"{MAP}[Worker].template.spec.containers: Required value: must have at least one container with name pytorch",
            ],
            id="one role under two spellings",
        ),
        pytest.param(
            {"master": {"template": None}},
            [
                f"{MAP}[Master].template.spec.containers: Required value: must be specified",
                f"{MAP}[Master].template.spec.containers: Required value: must have at least one container with name pytorch",
            ],
            id="no template",
        ),
        pytest.param(
            {"worker": containers()},
            [
                f"{MAP}[Worker].template.spec.containers: Required value: must be specified",
                f"{MAP}[Worker].template.spec.containers: Required value: must have at least one container with name pytorch",
            ],
            id="no containers",
        ),
        pytest.param(
            {"worker": containers({"name": "pytorch", "image": "img"}, {"name": "sidecar"})},
            [f"{MAP}[Worker].template.spec.containers[1].image: Required value: must be required"],
            id="a container without an image",
        ),
        pytest.param(
            {"worker": containers({"name": "main", "image": "img"})},
            [
                f"{MAP}[Worker].template.spec.containers: Required value: must have at least one container with name pytorch"
            ],
            id="no container of the kind's name",
        ),
        pytest.param({"masters": 2}, [f"{MAP}[Master].replicas: Forbidden: must be 1"], id="two masters"),
        pytest.param({"masters": 0}, [f"{MAP}[Master].replicas: Forbidden: must be 1"], id="no master"),
        pytest.param({"master": {"replicas": None}}, [], id="a master without replicas counts as one"),
        pytest.param(
            {"workers": -1},
            [f"{MAP}[Worker].replicas: Forbidden: must be at least 1"],
            id="a negative number of replicas",
        ),
        pytest.param({"workers": 0}, [], id="no workers beside a master"),
        pytest.param(
            {"masters": None, "workers": 0},
            [f"{MAP}[Worker].replicas: Forbidden: must be at least 1"],
            id="a job without replicas",
        ),
        pytest.param(
            {"worker": {"restartPolicy": "Sometimes"}},
            [
                f'{MAP}[Worker].restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never", "ExitCode"'
            ],
            id="an unknown restart policy",
        ),
    ],
)
def test_an_invalid_field_is_a_problem(fields: dict[str, Any], expected: list[str]) -> None:
    assert problems(**fields) == expected


def test_all_problems_are_reported_at_once() -> None:
    found = problems("Train", masters=2, worker={**containers({"name": "x"}), "restartPolicy": "y"})

    assert [problem.split(":")[0] for problem in found] == [
        "metadata.name",
        f"{MAP}[Master].replicas",
        f"{MAP}[Worker].restartPolicy",
        f"{MAP}[Worker].template.spec.containers[0].image",
        f"{MAP}[Worker].template.spec.containers",
    ]


@pytest.mark.parametrize(
    ("length", "workers", "fits"),
    [
        pytest.param(54, 10, True, id="one digit fits"),
        pytest.param(54, 11, False, id="two digits do not"),
        pytest.param(53, 100, True, id="two digits fit a shorter name"),
        pytest.param(53, 101, False, id="three digits do not"),
        pytest.param(63, 1, False, id="a name of maximum length leaves no room"),
    ],
)
def test_the_longest_derived_name_counts(length: int, workers: int, fits: bool) -> None:
    name = "a" * length

    found = problems(name, masters=None, workers=workers)

    longest = f"{name}-worker-{workers - 1}"
    text = f'metadata.name: Invalid value: "{longest}": pod names must be no more than 63 characters'
    assert found == ([] if fits else [text])


@pytest.mark.parametrize(
    ("workers", "fits"),
    [pytest.param(9, True, id="the maximum"), pytest.param(10, False, id="one above the maximum")],
)
def test_the_limit_of_replicas_is_a_setting(workers: int, fits: bool) -> None:
    found = problems(options=Options(max_replicas=10), workers=workers)

    assert found == ([] if fits else [f"{MAP}: Invalid value: 11 replicas: must be at most 10"])


def test_ten_thousand_replicas_are_the_default_limit() -> None:
    assert problems(workers=9_999) == []
    assert problems(workers=10_000) == [f"{MAP}: Invalid value: 10001 replicas: must be at most 10000"]


def test_a_huge_number_of_replicas_is_rejected_without_a_loop() -> None:
    assert problems(workers=2**31 - 1)[-1].startswith(f"{MAP}: Invalid value: {2**31} replicas")


def test_only_missing_replicas_are_a_problem_at_the_start() -> None:
    def at_start(**fields: Any) -> Sequence[bool]:
        return [problem.at_start for problem in PYTORCH.problems(pytorch_job(**fields), Options())]

    assert at_start(masters=None, workers=0) == [True]
    assert at_start(masters=2, workers=-1) == [False, False]


def variables(kind: ReplicaKind[Any], job: Any) -> dict[str, int]:
    """How many bytes each variable of the last worker's takes, as Linux counts them."""
    (worker,) = (role for role in kind.roles(job).values() if role.name == "Worker")
    given = kind.env(job, kind.roles(job), worker, worker.replicas - 1, Options())
    return {name: len(f"{name}={value}") for name, value in given}


def large(kind: ReplicaKind[Any], workers: int) -> Any:
    roles: dict[str, Any] = {"Worker": {"replicas": workers}}
    if kind.required_roles:
        roles["Master"] = {}
    return job_of(kind, **roles)


@pytest.mark.parametrize(
    ("kind", "variable"), [(TENSORFLOW, "TF_CONFIG"), (XGBOOST, "WORKER_ADDRS")], ids=["TFJob", "XGBoostJob"]
)
def test_replicas_whose_list_exceeds_a_variable_are_rejected(
    kind: ReplicaKind[Any], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = large(kind, 1_000)
    size = variables(kind, job)[variable]
    monkeypatch.setattr(checks, "LONGEST_VARIABLE", size)
    assert kind.problems(job, Options()) == []

    monkeypatch.setattr(checks, "LONGEST_VARIABLE", size - 1)
    (problem,) = map(str, kind.problems(job, Options()))
    assert problem.startswith(f"spec.{kind.replicas_field}: Invalid value: 100")
    assert f"{variable} would be {size} bytes long, but Linux allows {size - 1}: " in problem


@pytest.mark.parametrize(
    ("kind", "most"),
    [pytest.param(TENSORFLOW, 4_127, id="TFJob"), pytest.param(XGBOOST, 7_342, id="XGBoostJob")],
)
def test_the_largest_list_that_fits_a_variable_is_valid(kind: ReplicaKind[Any], most: int) -> None:
    assert kind.problems(large(kind, most), Options()) == []
    assert len(kind.problems(large(kind, most + 1), Options())) == 1


@pytest.mark.parametrize("kind", [JAX, PADDLE, PYTORCH], ids=lambda kind: kind.resource.kind)
def test_kinds_without_lists_of_replicas_have_no_such_limit(kind: ReplicaKind[Any]) -> None:
    assert kind.problems(large(kind, 9_999), Options()) == []


def test_dynamic_workers_are_not_listed() -> None:
    job = job_of(TENSORFLOW, Worker={"replicas": 9_000}, enableDynamicWorker=True)

    assert TENSORFLOW.problems(job, Options()) == []


@pytest.mark.skipif(os.sysconf("SC_PAGE_SIZE") != 4096, reason="the limit is 32 pages")
def test_linux_accepts_a_variable_of_that_length_but_none_longer() -> None:
    def start(size: int) -> None:
        subprocess.run(["/bin/true"], env={"A": "x" * (size - len("A="))}, check=True)

    start(checks.LONGEST_VARIABLE)
    with pytest.raises(OSError, match="Argument list too long"):
        start(checks.LONGEST_VARIABLE + 1)
