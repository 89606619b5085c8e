"""Parsing and validation of the spec of a v1 MPIJob."""

from typing import Any

import pytest

from api.mpijob import MPIJob
from controller.kind import Options
from controller.kinds.mpi import v1spec
from tests.support.mpi import HVD, v1_job, v1_template


def test_example_12_config() -> None:
    assert v1spec.data(HVD, v1spec.roles(HVD)["Launcher"], range(2), [1]) == {
        "hostfile": "hvd-worker-0 slots=4\nhvd-worker-1 slots=4\n",
        "kubexec.sh": '#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"',
        "discover_hosts.sh": "#!/bin/sh\necho hvd-worker-1:4",
    }


@pytest.mark.parametrize(
    ("run_policy", "older", "expected"),
    [
        pytest.param({}, None, None, id="neither"),
        pytest.param({}, "Running", "Running", id="the older alone"),
        pytest.param({"cleanPodPolicy": "All"}, "Running", "All", id="runPolicy goes first"),
    ],
)
def test_the_clean_pod_policy_is_read_from_both_fields(
    run_policy: dict[str, Any], older: str | None, expected: str | None
) -> None:
    of = v1_job(runPolicy={**run_policy, "backoffLimit": 3}, cleanPodPolicy=older)

    assert v1spec.run_policy(of).clean_pod_policy == expected
    assert v1spec.run_policy(of).backoff_limit == 3


def test_defaults() -> None:
    given = v1spec.roles(v1_job(worker={"replicas": None}))

    assert [(role.name, role.replicas, role.restart_policy) for role in given.values()] == [
        ("Launcher", 1, "Never"),
        ("Worker", 0, "Never"),
    ]


def problems(of: MPIJob, **options: Any) -> list[str]:
    return [str(problem) for problem in v1spec.problems(of, Options(**options))]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(
            v1_job(mpiReplicaSpecs=None),
            "spec.mpiReplicaSpecs: Required value: must be required",
            id="no roles",
        ),
        pytest.param(
            v1_job(mpiReplicaSpecs={"Worker": {"template": v1_template()}}),
            "spec.mpiReplicaSpecs[Launcher]: Required value: must be present",
            id="no launcher",
        ),
        pytest.param(
            v1_job(
                mpiReplicaSpecs={
                    "Launcher": {"template": v1_template()},
                    "worker": {"template": v1_template()},
                }
            ),
            'spec.mpiReplicaSpecs[worker]: Unsupported value: "worker": supported values: "Launcher", "Worker"',
            id="role names are case-sensitive",
        ),
        pytest.param(
            v1_job({"replicas": 2}),
            "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden: must be 1",
            id="two launchers",
        ),
        pytest.param(
            v1_job(worker={"replicas": -1}),
            "spec.mpiReplicaSpecs[Worker].replicas: Forbidden: must not be negative",
            id="a negative number of workers",
        ),
        pytest.param(
            v1_job(worker={"template": {"spec": {"containers": []}}}),
            "spec.mpiReplicaSpecs[Worker].template.spec.containers: Required value: must be specified",
            id="no container",
        ),
        pytest.param(
            v1_job({"template": v1_template(image="")}),
            "spec.mpiReplicaSpecs[Launcher].template.spec.containers[0].image: Required value: must be required",
            id="no image",
        ),
        pytest.param(
            v1_job(worker={"restartPolicy": "Sometimes"}),
            'spec.mpiReplicaSpecs[Worker].restartPolicy: Unsupported value: "Sometimes": supported values: "Always",'
            ' "OnFailure", "Never", "ExitCode"',
            id="an unknown policy",
        ),
        pytest.param(
            v1_job(mainContainer='x -- sh -c "curl evil"'),
            'spec.mainContainer: Invalid value: "x -- sh -c "curl evil"": must be the name of a container',
            id="a name that a shell would execute",
        ),
    ],
)
def test_an_invalid_job_has_a_problem(of: MPIJob, expected: str) -> None:
    assert problems(of) == [expected]


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(HVD, id="the example"),
        pytest.param(v1_job(mpiReplicaSpecs={"Launcher": {"template": v1_template()}}), id="no workers"),
        pytest.param(v1_job(worker={"replicas": 0}), id="no workers yet"),
        pytest.param(v1_job(mainContainer="trainer"), id="a main container"),
        pytest.param(
            v1_job({"template": {"spec": {"containers": [{"name": "any", "image": "i"}]}}}),
            id="any container name",
        ),
    ],
)
def test_a_valid_job_has_no_problems(of: MPIJob) -> None:
    assert problems(of) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "h" * 64,
            [f'metadata.name: Invalid value: "{"h" * 64}": must be no more than 63 characters'],
            id="no label",
        ),
        pytest.param("h" * 63, [], id="a label, though no child of its own could be a Service"),
        pytest.param("1.h", [], id="no name of a Service"),
    ],
)
def test_names(name: str, expected: list[str]) -> None:
    named = HVD.model_copy(update={"metadata": HVD.metadata.model_copy(update={"name": name})})

    assert problems(named) == expected


def test_too_many_workers() -> None:
    assert problems(v1_job(), max_replicas=2) == [
        "spec.mpiReplicaSpecs: Invalid value: 3 replicas: must be at most 2"
    ]
    (problem,) = problems(v1_job(worker={"replicas": 60_000}), max_replicas=100_000)
    assert problem.startswith(
        "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 60000: the host lists take"
    )
