"""What the API server refuses when a job is created or updated, as its own code for CEL rules decides."""

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.mpijob import FLAVOR, Flavor
from controller.crds import all_crds
from controller.crds.rules import creation_rules, update_rules
from controller.kind import Options, ValidationRule
from controller.kind.validation_rules import REQUIRED
from controller.kinds import ALL
from controller.kinds.mxnet import MXNET
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from rallypoint.local.apiserver.patches.jsonpatch import merge
from rallypoint.local.apiserver.schema.structural import Node, compiled, prune_and_default
from rallypoint.local.apiserver.schema.validation import validate
from tests.support.invalid_jobs import (
    PYTORCH_ROLES,
    WEBHOOK_CASES,
    WEBHOOK_KINDS,
    Object,
    job,
    mpi_job,
    role,
    roles,
)
from tests.support.parity.case import Case, load

GOLDEN = Path(__file__).parents[2] / "parity" / "golden"
CASES = load(GOLDEN)
STATUS = {"conditions": [{"type": "Created", "status": "True"}]}


@cache
def nodes(kind: str) -> Mapping[str, Node]:
    """Return the compiled schema of each version of a kind."""
    (definition,) = all_crds(kinds=[known for known in ALL if known.resource.kind == kind])
    return {
        version["name"]: compiled(version["schema"]["openAPIV3Schema"])
        for version in definition["spec"]["versions"]
    }


def node_of(manifest: Object) -> Node:
    return nodes(manifest["kind"])[manifest["apiVersion"].rpartition("/")[2]]


def defaulted(manifest: Object) -> Object:
    """Return the job as the API server stores it. The schema names one field of the metadata, so pruning would drop the others."""
    stored: Object = prune_and_default(node_of(manifest), manifest, [])
    return stored | {"metadata": manifest["metadata"]}


def create(manifest: Object) -> list[str]:
    """Return the errors of a new job."""
    errors = validate(node_of(manifest), defaulted(manifest), None)
    return [f"{error.field}: {error.message}" for error in errors]


def update(old: Object, new: Object, part: str = "") -> list[str]:
    """Return the errors of an update that replaces ``old``; ``part`` is the subresource."""
    errors = validate(node_of(new), defaulted(new), defaulted(old), part=part)
    return [f"{error.field}: {error.message}" for error in errors]


def problems(manifest: Object) -> list[str]:
    """Return why the controller would fail the job, as it is stored."""
    (kind,) = (kind for kind in ALL if kind.resource.kind == manifest["kind"])
    job = kind.model.model_validate(defaulted(manifest))
    variant: Any = kind.variant(job)
    return [str(problem) for problem in variant.problems(job, Options())]


def changed(manifest: Object, **spec: Any) -> Object:
    result = copy.deepcopy(manifest)
    result["spec"] |= spec
    return result


def test_the_table_has_the_cases_of_the_webhooks() -> None:
    """Of their 34, one is an update, and one is left to the controller: each has its own test."""
    assert len(WEBHOOK_CASES) == 32


@pytest.mark.parametrize(("manifest", "expected"), WEBHOOK_CASES)
def test_what_the_webhooks_refuse_is_refused_at_apply(manifest: Object, expected: str) -> None:
    assert [error for error in create(manifest) if error.startswith(expected)]


def test_the_manager_cannot_change() -> None:
    old, new = (
        job(PYTORCH, roles(PYTORCH), runPolicy={"managedBy": manager})
        for manager in ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
    )

    assert update(old, new) == ["spec.runPolicy.managedBy: Invalid value: field is immutable"]


def test_a_pytorchjob_without_its_container_is_left_to_the_controller() -> None:
    """A recording creates one."""
    manifest = job(PYTORCH, {"Worker": role(name="main")})

    assert create(manifest) == []
    assert problems(manifest)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_a_job_of_a_recording_and_its_updates_are_accepted(case: Case) -> None:
    assert create(case.job) == []

    stored = defaulted(case.job) | {"status": STATUS}
    for patch in recorded_patches(case):
        changed_job = merge(stored, patch)
        assert update(stored, changed_job) == []
        stored = changed_job


def recorded_patches(case: Case) -> Iterator[Object]:
    """Yield the merge patches of the job in a recording."""
    (field,) = (field for field in case.job["spec"] if field.endswith("ReplicaSpecs"))
    for step in case.steps:
        if step.verb == "patch-job":
            yield step.argument
        elif step.verb == "scale":
            counts = {
                "Worker" if name == "subresource" else name: count for name, count in step.argument.items()
            }
            yield {"spec": {field: {name: {"replicas": count} for name, count in counts.items()}}}


def test_the_recordings_have_updates() -> None:
    assert sum(len(list(recorded_patches(case))) for case in CASES) == 40


EXAMPLES = Path(__file__).parents[3] / "examples"


def example_jobs() -> list[Any]:
    kinds = {kind.resource.kind for kind in ALL}
    return [
        pytest.param(document, id=f"{path.relative_to(EXAMPLES)}: {document['metadata'].get('name')}")
        for path in sorted(EXAMPLES.rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document and document.get("kind") in kinds
    ]


@pytest.mark.parametrize("manifest", example_jobs())
def test_an_example_is_accepted(manifest: Object) -> None:
    assert create(manifest) == []


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.resource.kind) for kind in (*WEBHOOK_KINDS, MXNET)]
)
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="replicas and restartPolicy left out"),
        pytest.param({"restartPolicy": ""}, id="an empty restart policy"),
        pytest.param({"restartPolicy": "ExitCode", "replicas": 3}, id="a restart policy of the original"),
    ],
)
def test_what_the_original_runs_is_accepted(kind: Any, fields: Object) -> None:
    given = {name: role(name=kind.container, **(fields if name == "Worker" else {})) for name in roles(kind)}

    assert create(job(kind, given)) == []
    assert create(job(kind, {name.upper(): spec for name, spec in given.items()})) == []
    assert create(job(kind, {name.lower(): spec for name, spec in given.items()})) == []


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(
            job(TENSORFLOW, roles(TENSORFLOW, Gateway=role(name="tensorflow"))), id="unknown role of a TFJob"
        ),
        pytest.param(
            job(TENSORFLOW, {name: role(name="tensorflow") for name in ("chief", "Gateway")}),
            id="unknown role of a TFJob with a chief",
        ),
        pytest.param(job(MXNET, roles(MXNET, Gateway=role(name="mxnet"))), id="unknown role of an MXJob"),
        pytest.param(job(PYTORCH, roles(PYTORCH, worker=role(name="pytorch"))), id="two names of one role"),
        pytest.param(
            job(PYTORCH, roles(PYTORCH), elasticPolicy={"minReplicas": 4, "maxReplicas": 2}),
            id="minimum above maximum",
        ),
        pytest.param(job(MXNET, {"Scheduler": role(name="mxnet", replicas=2)}), id="two schedulers"),
    ],
)
def test_what_the_original_runs_is_left_to_the_controller(manifest: Object) -> None:
    assert create(manifest) == []
    assert problems(manifest)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(
            {**job(PYTORCH, {}), "spec": {"pytorchReplicaSpecs": {}}},
            f"{PYTORCH_ROLES}: Required value: must have at least one role: Master or Worker",
            id="an empty map of roles",
        ),
        pytest.param(
            {key: value for key, value in job(PYTORCH, {}).items() if key != "spec"},
            "spec: Required value: a job must have a spec",
            id="no spec",
        ),
        pytest.param(
            job(PYTORCH, roles(PYTORCH, Chief=role(name="pytorch"))),
            f"{PYTORCH_ROLES}: Invalid value: the names of roles must be Master or Worker",
            id="an unknown role",
        ),
        pytest.param(
            job(PYTORCH, {"Worker": role(name="pytorch", restartPolicy="Sometimes")}),
            f"{PYTORCH_ROLES}: Invalid value: restartPolicy must be Always, OnFailure, Never or ExitCode",
            id="an unknown restart policy",
        ),
        *(
            pytest.param(
                job(TENSORFLOW, {name: role(name="tensorflow") for name in ("Wroker", *others)}),
                "spec.tfReplicaSpecs: Invalid value: the names of roles must be Chief, Evaluator, Master, PS or Worker",
                id=f"an unknown role in a TFJob with {others or 'no other role'}, which no role can end",
            )
            for others in ((), ("PS",), ("Evaluator", "ps"))
        ),
        pytest.param(
            job(PYTORCH, {"Worker": {"replicas": 1}}),
            f"{PYTORCH_ROLES}: Required value: the template of each role must have at least one container",
            id="no template",
        ),
        pytest.param(
            job(PYTORCH, {"Worker": role(name="pytorch", image=None)}),
            f"{PYTORCH_ROLES}: Required value: each container must have an image",
            id="no image",
        ),
        pytest.param(
            job(PYTORCH, {"Worker": role(name="pytorch", replicas=-1), "Master": role(name="pytorch")}),
            f"{PYTORCH_ROLES}: Invalid value: replicas must not be negative",
            id="negative replicas",
        ),
        pytest.param(
            job(PYTORCH, {"Worker": role(name="pytorch", replicas=11)}, name="x" * 54),
            "metadata.name: Invalid value: the names of pods, <job>-<role>-<last index>, must have at most 63 characters",
            id="a name too long for the last pod",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_one_error(manifest: Object, expected: str) -> None:
    assert create(manifest) == [expected]


def test_a_name_may_fill_its_length() -> None:
    assert create(job(PYTORCH, {"Worker": role(name="pytorch", replicas=10)}, name="x" * 54)) == []


@pytest.mark.parametrize(("manifest", "_"), WEBHOOK_CASES)
def test_the_controller_still_checks_older_jobs(manifest: Object, _: str) -> None:
    """Except those of others, which it ignores."""
    is_foreign = "managedBy" in manifest["spec"].get("runPolicy", {})

    assert is_foreign or problems(manifest)


STORABLE = [pytest.param(case.values[0], id=case.id) for case in WEBHOOK_CASES if case.values[0]["spec"]]
"""Without a map of roles, a job was never stored: the original's definitions require it."""


@pytest.mark.parametrize("manifest", STORABLE)
def test_an_older_job_that_has_a_status_can_be_updated(manifest: Object) -> None:
    stored: Object = {**held(manifest), "status": STATUS}
    policy = {**stored["spec"].get("runPolicy", {}), "suspend": True}

    assert update(held(manifest), stored, part="status") == []  # the first status
    assert update(stored, {**stored, "status": {}}, part="status") == []
    assert update(stored, {**stored, "metadata": {**stored["metadata"], "finalizers": []}}) == []
    assert update(stored, changed(stored, runPolicy=policy)) == []


@pytest.mark.parametrize("manifest", STORABLE)
def test_an_older_job_without_a_status_needs_one_before_other_updates(manifest: Object) -> None:
    """An empty one is enough. A managedBy of an unknown controller is an enumeration, which refuses no unchanged value."""
    stored = held(manifest)
    released = {**stored, "metadata": {**stored["metadata"], "finalizers": []}}

    assert bool(update(stored, released)) == ("managedBy" not in str(manifest))
    assert update(stored, {**stored, "status": {}}, part="status") == []
    assert update({**stored, "status": {}}, {**released, "status": {}}) == []


def held(manifest: Object) -> Object:
    return {**manifest, "metadata": {**manifest["metadata"], "finalizers": ["example.org/hold"]}}


def test_an_update_must_not_make_a_valid_job_invalid() -> None:
    stored = {**job(PYTORCH, roles(PYTORCH)), "status": STATUS}

    errors = update(stored, changed(stored, pytorchReplicaSpecs={"Worker": role(name="pytorch", image="")}))

    assert errors == [f"{PYTORCH_ROLES}: Required value: each container must have an image"]


def test_an_invalid_job_can_be_corrected() -> None:
    stored = {**job(PYTORCH, {"Chief": role(name="pytorch")}), "status": STATUS}

    assert update(stored, changed(stored, pytorchReplicaSpecs=roles(PYTORCH))) == []


def test_the_workers_of_a_running_job_can_be_scaled_to_zero() -> None:
    stored = {**job(PYTORCH, roles(PYTORCH)), "status": STATUS}

    assert (
        update(stored, changed(stored, pytorchReplicaSpecs={"Worker": role(name="pytorch", replicas=0)}))
        == []
    )


def test_words_in_literals_of_an_expression_stay() -> None:
    expression = "spec.kind == 'spec of a name' && name != spec.name"
    _, rule = creation_rules([ValidationRule(expression, "wrong")])

    assert rule["rule"].endswith(
        "(self.spec.kind == 'spec of a name' && self.metadata.name != self.spec.name)"
    )


GROUP = [
    ValidationRule("spec.a > 0", "a must be positive", ".a"),
    ValidationRule("spec.b > 0", "b must be positive, and 'b' set", ".a"),
    ValidationRule("spec.c > 0", "c must be positive", ".a"),
    ValidationRule("spec.a < 9", "a must be below 9", ".a", REQUIRED),
]
"""The first three have one field and one reason."""
MESSAGES = [rule.message for rule in GROUP[:3]]


def errors_of(new: Object, old: Object | None = None) -> list[str]:
    """Return the errors of a small object with the rules of ``GROUP``."""
    numbers = {"type": "object", "properties": {key: {"type": "integer"} for key in "abc"}}
    schema = {
        "type": "object",
        "properties": {
            "spec": numbers,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "x-kubernetes-validations": [*creation_rules(GROUP), *update_rules(GROUP)],
    }
    found = validate(compiled(schema), {"metadata": {"name": "test"}, **new}, old)
    return [f"{error.field}: {error.message}" for error in found]


@pytest.mark.parametrize(
    ("spec", "broken"),
    [
        pytest.param({"a": 1, "b": 1, "c": 1}, [], id="valid"),
        pytest.param({"a": 0, "b": 1, "c": 1}, [0], id="the first"),
        pytest.param({"a": 1, "b": 0, "c": 1}, [1], id="the second"),
        pytest.param({"a": 1, "b": 1, "c": 0}, [2], id="the third"),
        pytest.param({"a": 0, "b": 1, "c": 0}, [0, 2], id="two"),
        pytest.param({"a": 0, "b": 0, "c": 0}, [0, 1, 2], id="all"),
        pytest.param({"a": 0, "b": 1}, [0, 1, 2], id="the first, and the third has an error"),
    ],
)
def test_rules_with_one_field_and_reason_are_reported_together(spec: Object, broken: list[int]) -> None:
    """If the message cannot be made because a condition has an error, it lists all that must hold."""
    valid: Object = {"spec": {"a": 1, "b": 1, "c": 1}, "status": STATUS}
    expected = [f"spec.a: Invalid value: {'; '.join(MESSAGES[index] for index in broken)}"] if broken else []

    assert errors_of({"spec": spec}) == expected
    assert errors_of({"spec": spec, "status": STATUS}, valid) == expected


def test_an_error_says_what_an_update_has_broken() -> None:
    """What was broken before is left out."""
    stored: Object = {"spec": {"a": 0, "b": 1, "c": 1}, "status": STATUS}

    assert errors_of({**stored, "spec": {"a": 0, "b": 0, "c": 1}}, stored) == [
        f"spec.a: Invalid value: {MESSAGES[1]}"
    ]
    assert errors_of({**stored, "spec": {"a": 0, "b": 1, "c": 2}}, stored) == []


def test_a_status_write_of_a_stored_job_that_breaks_rules_is_accepted() -> None:
    stored: Object = {"spec": {"a": 0, "b": 0, "c": 9}}

    assert errors_of({**stored, "status": STATUS}, stored) == []
    assert errors_of({**stored, "status": {}}, {**stored, "status": STATUS}) == []


def test_rules_of_another_reason_are_reported_apart() -> None:
    assert errors_of({"spec": {"a": 9, "b": 0, "c": 1}}) == [
        f"spec.a: Invalid value: {MESSAGES[1]}",
        "spec.a: Required value: a must be below 9",
    ]


def test_a_rule_by_itself_has_a_constant_message() -> None:
    *_, rule = creation_rules(GROUP)

    assert "messageExpression" not in rule
    assert rule["message"] == "a must be below 9"


@pytest.mark.parametrize("message", ["both ' and \"", "a \\ in it", "two\nlines"])
def test_a_message_that_needs_escapes_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match="a message has"):
        creation_rules([ValidationRule("true", message), ValidationRule("true", "other")])


def test_a_job_with_two_mistakes_is_refused_with_both() -> None:
    manifest = job(PYTORCH, {"Chief": role(name="pytorch", replicas=-1), "Worker": role(name="pytorch")})
    stored = {**job(PYTORCH, roles(PYTORCH)), "status": STATUS}
    expected = [
        f"{PYTORCH_ROLES}: Invalid value: the names of roles must be Master or Worker; replicas must not be negative"
    ]

    assert create(manifest) == expected
    assert update(stored, changed(stored, pytorchReplicaSpecs=manifest["spec"]["pytorchReplicaSpecs"])) == (
        expected
    )


@pytest.mark.parametrize("kind", [pytest.param(kind.resource.kind, id=kind.resource.kind) for kind in ALL])
def test_no_rule_of_the_root_has_the_field_and_the_reason_of_another(kind: str) -> None:
    """Once for new jobs, and once for updates: each rule of the root takes time in each write."""
    (definition,) = all_crds(kinds=[known for known in ALL if known.resource.kind == kind])
    for version in definition["spec"]["versions"]:
        rules = version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
        places = [(rule["fieldPath"], rule["reason"], "oldSelf" in rule["rule"]) for rule in rules[1:]]
        assert len(set(places)) == len(places)


MPI_ROLES = "spec.mpiReplicaSpecs"
MPI_VERSIONS = ("v1", "v1alpha2", "v2beta1")


@pytest.mark.parametrize("version", MPI_VERSIONS)
def test_a_valid_mpijob_is_accepted(version: str) -> None:
    assert create(mpi_job(version)) == []


@pytest.mark.parametrize("version", MPI_VERSIONS)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"launcher": {"replicas": 2}},
            "Forbidden: replicas of Launcher must be 1 or omitted",
            id="two launchers",
        ),
        pytest.param(
            {"worker": {"image": ""}}, "Required value: each container must have an image", id="no image"
        ),
        pytest.param(
            {"worker": {"restartPolicy": "Sometimes"}},
            "Invalid value: restartPolicy must be Always, OnFailure, Never or ExitCode",
            id="restart policy",
        ),
    ],
)
def test_mpijobs_that_no_version_runs_are_refused(version: str, changes: Object, expected: str) -> None:
    assert create(mpi_job(version, **changes)) == [f"{MPI_ROLES}: {expected}"]
    assert problems(mpi_job(version, **changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"name": "1st"}, "metadata.name: Invalid value: ", id="a name that no Service can have"),
        pytest.param({"name": "x" * 55}, "metadata.name: Invalid value: ", id="a name too long for workers"),
        pytest.param(
            {"slotsPerWorker": -1}, "spec.slotsPerWorker: Invalid value: must not be negative", id="slots"
        ),
        pytest.param(
            {"runPolicy": {"cleanPodPolicy": "Some"}},
            "spec.runPolicy.cleanPodPolicy: Invalid value: must be All, Running or None",
            id="cleanPodPolicy",
        ),
        pytest.param(
            {"runPolicy": {"backoffLimit": -1}},
            "spec.runPolicy.backoffLimit: Invalid value: ",
            id="backoffLimit",
        ),
    ],
)
def test_mpijobs_that_mpi_operator_reports_as_invalid_are_refused(changes: Object, expected: str) -> None:
    (error,) = create(mpi_job("v2beta1", **changes))

    assert error.startswith(expected)
    assert problems(mpi_job("v2beta1", **changes))
    assert create(mpi_job("v1", **changes)) == []


@pytest.mark.parametrize(
    "worker",
    [
        pytest.param({"restartPolicy": "ExitCode"}, id="ExitCode"),
        pytest.param({"replicas": 0}, id="no workers"),
    ],
)
def test_a_job_of_v1_can_be_created_through_v2beta1(worker: Object) -> None:
    """MultiKueue does so. The annotation says that training-operator's rules count, and no rule can read it."""
    manifest = mpi_job("v2beta1", worker=worker)
    manifest["metadata"]["annotations"] = {FLAVOR: Flavor.V1.value}

    assert create(manifest) == []
    assert problems(manifest) == []
    assert problems(mpi_job("v2beta1", worker=worker))


def test_an_empty_path_of_the_keys_is_the_default() -> None:
    """mpi-operator sets its defaults before it validates a job."""
    manifest = mpi_job("v2beta1", sshAuthMountPath="")

    assert create(manifest) == []
    assert problems(manifest) == []


def test_mpi_operator_ignores_unknown_roles() -> None:
    manifest = mpi_job("v2beta1")
    manifest["spec"]["mpiReplicaSpecs"]["Gateway"] = {}

    assert create(manifest) == []
    assert create({**manifest, "apiVersion": "kubeflow.org/v1"}) == [
        f"{MPI_ROLES}: Invalid value: the names of roles must be Launcher or Worker"
    ]


@pytest.mark.parametrize("kind", [pytest.param(kind.resource.kind, id=kind.resource.kind) for kind in ALL])
def test_local_mode_evaluates_the_rules_without_the_rest_of_a_job(kind: str) -> None:
    """Its package for CEL copies an object on each access: with the environment of containers, rules take many milliseconds."""
    for root in nodes(kind).values():
        for node in (root, root.properties["spec"]):
            assert node.rule_fields is not None
            assert not {"env", "command", "volumes"} & node.rule_fields.mentioned
            assert not {"spec", "template", "containers"} & node.rule_fields.whole
