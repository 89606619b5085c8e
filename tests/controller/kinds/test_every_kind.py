"""Properties of every kind and of every kind with indexed pods. A new kind in ``ALL`` is tested automatically."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from api.batch import BATCH_JOBS
from api.children import pod_from_json, service_from_json
from api.conditions import is_finished
from api.job import Job, RestartPolicy
from api.meta import PODS, SERVICES, Resource
from api.services import ServiceMode
from controller.crds import all_crds
from controller.domain import Counts, Present, Snapshot
from controller.kind import JobKind, Options, ReplicaKind
from controller.kinds import ALL
from controller.policy.count import by_role
from controller.reconcile.plan import decide
from tests.support.builders import NOON, template
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import mpi_job

ROOT = Path(__file__).parents[3]
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
ENGINE = ("policy", "reconcile", "runtime")
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")

Kind = ReplicaKind[Any]
REPLICAS = [kind for kind in ALL if isinstance(kind, ReplicaKind)]
every_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.resource.kind)
every_replica_kind = pytest.mark.parametrize("kind", REPLICAS, ids=lambda kind: kind.resource.kind)


def job_of(kind: Kind, sizes: dict[str, int], policy: str = "OnFailure", **spec: Any) -> Job:
    """A small valid job of any kind."""
    replicas = {
        name: {
            "replicas": 1 if name in kind.single_roles else sizes.get(name, 1),
            "restartPolicy": policy,
            "template": template(kind.container),
        }
        for name in kind.role_names
        if name in sizes
    }
    job: Job = kind.model.model_validate(
        {
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "metadata": {"name": "law", "namespace": "ml", "uid": "law-uid"},
            "spec": {kind.replicas_field: replicas, **spec},
        }
    )
    return job


@st.composite
def jobs(draw: st.DrawFn, kind: Kind, smallest: int = 1) -> Job:
    """Jobs with any of the kind's roles, at least one, that the kind itself does not refuse."""
    names = draw(st.sets(st.sampled_from(kind.role_names), min_size=1)).union(kind.required_roles)
    if len(names.intersection(kind.alternative_roles)) > 1:
        names -= {*kind.alternative_roles} - {draw(st.sampled_from(kind.alternative_roles))}
    sizes = {name: draw(st.integers(smallest, 4)) for name in kind.role_names if name in names}
    job = job_of(kind, sizes, draw(st.sampled_from(RestartPolicy)))
    assume(not list(kind.check(job, kind.roles(job))))
    return job


def bodies(kind: Kind, job: Job) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (child.resource.kind, child.name, child.body())
        for _, _, child in kind.wanted(job, kind.roles(job), Options(), Present())
    ]


def examples() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(ROOT.glob("examples/**/*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["apiVersion"].startswith("kubeflow.org/"):
                yield path, document


def version(document: dict[str, Any]) -> str:
    """What the API server stamps into jobs of a kind that has several versions, and others do not know."""
    return str(document["apiVersion"].partition("/")[2])


@every_replica_kind
@pytest.mark.parametrize("services", ServiceMode)
@given(data=st.data())
def test_a_child_fills_the_slot_for_which_it_was_built(
    kind: Kind, services: ServiceMode, data: st.DataObject
) -> None:
    """So its index says that it exists, without a comparison of names."""
    job = data.draw(jobs(kind))
    options, roles = Options(services=services), kind.roles(job)
    rows: dict[Resource, list[Any]] = {PODS: [], SERVICES: []}
    for _, _, child in kind.wanted(job, roles, options, Present()):
        made = child.body()
        made["metadata"] |= {"namespace": "ml", "uid": child.name}
        decode = pod_from_json if child.resource == PODS else service_from_json
        row = decode(orjson.dumps(made))
        assert kind.slot(job.metadata.name, row) == (row.role, row.index)
        rows[child.resource].append(row)
    present = Present(by_role(rows[PODS]), by_role(rows[SERVICES]))

    assert rows[PODS]
    assert list(kind.wanted(job, roles, options, present)) == []
    for resource, found in rows.items():
        for row in found:
            others = {of: by_role([other for other in rows[of] if other is not row]) for of in rows}
            missing = list(kind.wanted(job, roles, options, Present(others[PODS], others[SERVICES])))
            assert [(child.resource, child.name) for _, _, child in missing] == [(resource, row.name)]


@every_replica_kind
@given(data=st.data())
def test_names_of_children_are_dns_labels_and_unique(kind: Kind, data: st.DataObject) -> None:
    made = bodies(kind, data.draw(jobs(kind)))

    assert len({(resource, name) for resource, name, _ in made}) == len(made)
    for _, name, body in made:
        assert LABEL.fullmatch(name)
        assert body["metadata"]["name"] == name


@every_replica_kind
@given(data=st.data())
def test_the_desired_children_depend_on_the_job_alone(kind: Kind, data: st.DataObject) -> None:
    job = data.draw(jobs(kind))
    before = copy.deepcopy(job.to_wire())
    again = kind.model.model_validate_json(orjson.dumps(before))

    assert bodies(kind, job) == bodies(kind, again)
    assert job.to_wire() == before


@every_replica_kind
@given(data=st.data())
def test_every_pod_names_its_owner(kind: Kind, data: st.DataObject) -> None:
    job = data.draw(jobs(kind))

    for resource, name, body in bodies(kind, job):
        meta = body["metadata"]
        assert [owner["uid"] for owner in meta["ownerReferences"]] == ["law-uid"]
        assert meta["labels"]["training.kubeflow.org/operator-name"] == kind.controller_name
        assert meta["labels"]["training.kubeflow.org/job-name"] == "law"
        if resource == PODS.kind:
            names = [container["name"] for container in body["spec"]["containers"]]
            assert kind.container in names, name


@every_replica_kind
@given(data=st.data())
def test_a_valid_job_has_no_problems(kind: Kind, data: st.DataObject) -> None:
    assert list(kind.problems(data.draw(jobs(kind)), Options())) == []


@every_replica_kind
@given(data=st.data())
def test_an_applied_plan_leaves_nothing_to_do(kind: Kind, data: st.DataObject) -> None:
    cluster = InMemoryCluster(data.draw(jobs(kind)), kind=kind)
    cluster.settle()
    for name in list(cluster.pods):
        cluster.set_phase(data.draw(st.sampled_from(PHASES)), name.removeprefix("law-"))
    cluster.settle()

    assert cluster.is_idle(cluster.decide())


@every_replica_kind
@given(data=st.data())
def test_every_combination_of_counts_has_a_verdict(kind: Kind, data: st.DataObject) -> None:
    job = data.draw(jobs(kind, smallest=0))
    roles = kind.roles(job)
    number = st.integers(0, 4)
    counts = {name: data.draw(st.builds(Counts, number, number, number, number)) for name in roles}

    verdict = kind.completion_rule(job, roles, counts)

    assert not (verdict.succeeded and verdict.failed)


@every_replica_kind
def test_unknown_fields_survive_a_round_trip(kind: Kind) -> None:
    job = job_of(kind, dict.fromkeys(kind.role_names, 1), fromTheFuture={"a": [None]})
    serialized = {**job.to_wire(), "odd": 1, "status": {"byAnother": True, "conditions": []}}

    assert kind.model.model_validate(serialized).to_wire() == serialized


@every_replica_kind
def test_an_empty_spec_can_be_parsed(kind: Kind) -> None:
    job = kind.model.model_validate({"spec": {}})

    assert not kind.roles(job)
    assert [problem.field for problem in kind.problems(job, Options())][1:] == [f"spec.{kind.replicas_field}"]


@every_kind
def test_the_kind_is_defined_as_a_custom_resource(kind: JobKind[Any]) -> None:
    names = [(crd["spec"]["names"]["kind"], crd["spec"]["names"]["plural"]) for crd in all_crds()]

    assert (kind.resource.kind, kind.resource.plural) in names


SCALABLE = [
    pytest.param(variant, id=f"{kind.resource.kind} {variant.resource.version}")
    for kind in ALL
    if kind.scalable
    for variant in kind.variants
]


def selected(body: dict[str, Any], selector: str) -> bool:
    """Return whether a pod, or the pods of a batch Job, have all labels of a selector."""
    labels: dict[str, str] = body["spec"].get("template", body)["metadata"]["labels"]
    return dict(pair.split("=") for pair in selector.split(",")).items() <= labels.items()


@pytest.mark.parametrize("kind", SCALABLE)
def test_the_selector_for_scaling_matches_the_workers_alone(kind: Any) -> None:
    """Launcher, chief and master are created in the same reconciles, and a job of another name has other labels."""
    if isinstance(kind, ReplicaKind):
        job: Job = job_of(kind, dict.fromkeys({*kind.role_names} - {*kind.alternative_roles[1:]}, 2))
    else:
        job = mpi_job(workers=2, flavor=kind.resource.version, runLauncherAsWorker=True)
    cluster = InMemoryCluster(job, kind=kind)
    plans = cluster.settle()
    cluster.set_phase("Running", ready=True)
    plans += cluster.settle()

    children = [child for plan in plans for child in plan.create if child.resource in {PODS, BATCH_JOBS}]
    made = [body for child in children if (body := child.body())]  # a check of a name has no body
    selector = (cluster.status.replica_statuses or {})["Worker"].selector
    assert selector
    assert sorted(body["metadata"]["name"] for body in made if selected(body, selector)) == [
        f"{job.metadata.name}-worker-0",
        f"{job.metadata.name}-worker-1",
    ]
    assert len(made) > 2 or kind.resource.kind == "JAXJob"


@every_kind
def test_the_cluster_role_of_the_controller_allows_what_a_reconcile_does(kind: JobKind[Any]) -> None:
    component = ROOT / "manifests/components" / kind.resource.singular
    folder = component if kind.is_opt_in else ROOT / "manifests/base/rbac"
    role = yaml.safe_load((folder / "cluster-role.yaml").read_text())
    granted = {
        (resource, verb)
        for rule in role["rules"]
        if kind.resource.group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    plural = kind.resource.plural

    assert {(plural, verb) for verb in ("get", "list", "watch", "delete")} <= granted
    assert (f"{plural}/status", "patch") in granted
    assert (f"{plural}/finalizers", "update") in granted


@every_kind
def test_the_engine_does_not_know_the_kind(kind: JobKind[Any]) -> None:
    names = re.compile(rf"{kind.resource.kind}|\b{kind.framework}\b(?!-operator)", re.IGNORECASE)
    engine = [path for room in ENGINE for path in (ROOT / "controller" / room).rglob("*.py")]

    assert engine
    assert [path for path in engine if names.search(path.read_text())] == []


@every_kind
def test_the_kind_has_examples_without_problems(kind: JobKind[Any]) -> None:
    found = [(path, manifest) for path, manifest in examples() if manifest["kind"] == kind.resource.kind]

    assert found
    for path, document in found:
        job = kind.model.model_validate(
            {**document, "spec": {"flavor": version(document), **document["spec"]}}
        )
        plan = decide(kind.variant(job), job, Snapshot(), NOON, Options())
        assert plan.create, path
        assert not is_finished(plan.status), path


def test_every_example_is_of_a_known_kind() -> None:
    known = {kind.resource.kind for kind in ALL}

    assert {document["kind"] for _, document in examples()} <= known


def test_kinds_do_not_share_names() -> None:
    for names in (
        [kind.resource.kind for kind in ALL],
        [kind.controller_name for kind in ALL],
        [kind.framework for kind in ALL],
    ):
        assert len(set(names)) == len(names)
