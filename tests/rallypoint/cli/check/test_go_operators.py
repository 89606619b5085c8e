"""What a Go operator that starts again would do to single jobs."""

from typing import Any

import pytest

from api.batch import BatchJob
from rallypoint.cli import main
from rallypoint.cli.check.go_operators import GO_OPERATORS, dropped_fields, harm, other_manager_of

US, MPI_OPERATOR, MULTIKUEUE = (
    "kubeflow.org/training-operator",
    "kubeflow.org/mpi-operator",
    "kueue.x-k8s.io/multikueue",
)
TRAINING, MPI = GO_OPERATORS["training-operator"], GO_OPERATORS["mpi-operator"]
LAUNCHER = BatchJob("hpc", "pi-launcher", "b", 1, owner_uid="u")


def job(flavor: str, manager: str | None, kind: str = "MPIJob") -> dict[str, Any]:
    policy = {} if manager is None else {"managedBy": manager}
    metadata = {"name": "pi", "namespace": "hpc", "uid": "u"}
    return {"kind": kind, "metadata": metadata, "spec": {"flavor": flavor, "runPolicy": policy}}


TWICE, NO_LEADER = "second launcher", "would have no operator"


@pytest.mark.parametrize(
    ("operator", "flavor", "manager", "says"),
    [
        pytest.param(TRAINING, "v1", US, "", id="its own job"),
        pytest.param(TRAINING, "v1", None, "", id="its own job without a word"),
        pytest.param(TRAINING, "v1", MPI_OPERATOR, NO_LEADER, id="its own job that names mpi-operator"),
        pytest.param(TRAINING, "v2beta1", MPI_OPERATOR, "", id="one of mpi-operator"),
        pytest.param(TRAINING, "v2beta1", US, TWICE, id="a wrong manager"),
        pytest.param(TRAINING, "v2beta1", None, TWICE, id="no manager"),
        pytest.param(TRAINING, "v2beta1", MULTIKUEUE, "", id="one of MultiKueue"),
        pytest.param(TRAINING, "v1alpha2", MPI_OPERATOR, "", id="one of an old mpi-operator"),
        pytest.param(TRAINING, "v1alpha2", None, TWICE, id="no manager in v1alpha2"),
        pytest.param(MPI, "v2beta1", MPI_OPERATOR, "", id="mpi-operator and its own"),
        pytest.param(MPI, "v2beta1", None, "", id="mpi-operator and its own without a word"),
        pytest.param(
            MPI, "v2beta1", US, NO_LEADER, id="mpi-operator and its own that names training-operator"
        ),
        pytest.param(MPI, "v1", US, "", id="mpi-operator and one of training-operator"),
        pytest.param(MPI, "v1", MULTIKUEUE, "", id="mpi-operator and one of MultiKueue"),
        pytest.param(MPI, "v1", MPI_OPERATOR, TWICE, id="mpi-operator and a wrong manager"),
        pytest.param(MPI, "v1", None, TWICE, id="mpi-operator and no manager"),
        pytest.param(
            MPI, "v1alpha2", MPI_OPERATOR, TWICE, id="mpi-operator and v1alpha2, which it knows no more"
        ),
    ],
)
def test_the_effect_of_a_go_operator_on_a_job(
    operator: Any, flavor: str, manager: str | None, says: str
) -> None:
    said = harm(operator, job(flavor, manager), [], reads_managed_by=True)
    assert says in said
    assert bool(says) == bool(said)


def test_the_form_of_the_launcher_overrides_the_flavor() -> None:
    """The flavor is lost under the definition of a Go operator."""
    assert harm(TRAINING, job("v1", MPI_OPERATOR), [LAUNCHER], reads_managed_by=True) == ""
    assert "second launcher" in harm(TRAINING, job("v1", US), [LAUNCHER], reads_managed_by=True)


def test_a_job_in_a_queue_of_kueue_is_named() -> None:
    """The operator does not change its managedBy, so a user must correct it."""
    body = job("v2beta1", None)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    body["spec"]["runPolicy"]["suspend"] = True

    assert TWICE in harm(TRAINING, body, [], reads_managed_by=True)


def test_an_older_release_handles_every_job() -> None:
    assert "that release does not read managedBy" in harm(
        TRAINING, job("v2beta1", MPI_OPERATOR), [], reads_managed_by=False
    )
    assert MULTIKUEUE in harm(TRAINING, job("v1", MULTIKUEUE), [], reads_managed_by=False)
    assert harm(TRAINING, job("v1", US), [], reads_managed_by=False) == ""


@pytest.mark.parametrize(
    ("operator", "manager", "is_harmed"),
    [(TRAINING, MULTIKUEUE, True), (TRAINING, US, False), (TRAINING, None, False), (MPI, MULTIKUEUE, False)],
)
def test_a_jaxjob_of_another_manager(operator: Any, manager: str | None, is_harmed: bool) -> None:
    found = harm(operator, job("v1", manager, "JAXJob"), [], reads_managed_by=True)
    assert bool(found) is is_harmed


def test_an_unknown_release_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--before", "back", "--to", "training-operator", "--release", "latest"])

    assert "'latest' is not a release such as 1.9 or v1.9.4" in capsys.readouterr().err


def test_the_operator_that_manages_a_job_instead() -> None:
    assert other_manager_of(TRAINING, job("v2beta1", MPI_OPERATOR)) == "mpi-operator"
    assert other_manager_of(MPI, job("v1", US)) == "training-operator"
    assert other_manager_of(TRAINING, job("v1", US)) == other_manager_of(TRAINING, job("v1", None)) == ""


def with_spec(kind: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "j"}, "spec": spec}


def template(**pod: Any) -> dict[str, Any]:
    return {"Worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a"}], **pod}}}}


def test_fields_that_the_go_definitions_lack_are_named() -> None:
    known = with_spec("JAXJob", runPolicy={"suspend": True}, jaxReplicaSpecs=template(nodeName="n"))
    roles = template(future={"a": 1}, nodeSelector={"any": "label"})
    roles["Worker"]["template"]["spec"]["containers"][0]["future"] = 1

    assert dropped_fields(TRAINING, known) == []
    assert dropped_fields(TRAINING, with_spec("JAXJob", new=1, jaxReplicaSpecs=roles)) == [
        "spec.new",
        "spec.jaxReplicaSpecs.Worker.template.spec.containers[0].future",
        "spec.jaxReplicaSpecs.Worker.template.spec.future",
    ]


def test_fields_that_only_rallypoint_has_are_named() -> None:
    body = with_spec("PyTorchJob", runPolicy={"backoffLimit": 1, "failurePolicy": {"maxRestarts": 1}})

    assert dropped_fields(TRAINING, body) == ["spec.runPolicy.failurePolicy"]


def test_fields_of_other_flavors_are_not_missed() -> None:
    """The API server's defaults of another version set them, and a job of this flavor does not read them."""
    spec = {"flavor": "v1", "sshAuthMountPath": "/root/.ssh", "mpiReplicaSpecs": template()}

    assert dropped_fields(TRAINING, with_spec("MPIJob", **spec)) == []
    assert (
        dropped_fields(MPI, with_spec("MPIJob", **{**spec, "flavor": "v2beta1", "mainContainer": "a"})) == []
    )
    assert dropped_fields(MPI, with_spec("MPIJob", new=1)) == ["spec.new"]


def test_an_operator_drops_nothing_of_kinds_that_it_does_not_have() -> None:
    assert dropped_fields(MPI, with_spec("JAXJob", new=1)) == []
