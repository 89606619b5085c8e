"""An MPIJob in three versions: no write through any version loses a field or the flavor.

Every way of writing is tried with jobs born in each version and written through each other one, on a real kube-apiserver and on the
embedded one. How typed clients behave is in ``tests.support.mpiversions``.
"""

import asyncio
import copy
import itertools
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from api.mpijob import FLAVOR, Flavor, MPIJob, MPIJobSpec, flavor
from controller.crds import all_crds
from rallypoint.local.apiserver import ApiServer
from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.http_trace import JSON_PATCH, RawClient, Reply, Step
from tests.support.mpiversions import (
    OWN,
    PLURAL,
    VERSIONS,
    MPIJobClient,
    Object,
    manifest,
    template,
    typed,
)

DEFINITION = next(crd for crd in all_crds() if crd["spec"]["names"]["plural"] == PLURAL)
FIXED = (
    "the flavor of an MPIJob is immutable; delete and create it again, or write it through the version "
    "it was created in, or with a patch"
)
PAIRS = list(itertools.permutations(VERSIONS, 2))


@pytest.fixture(scope="module")
def job_namespace(control_plane: ControlPlane, crds: list[Path]) -> Iterator[str]:
    """A namespace for all of these jobs; each has a name of its own."""
    name = f"mpi-{secrets.token_hex(4)}"
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def real(control_plane: ControlPlane, job_namespace: str) -> AsyncIterator[MPIJobClient]:
    async with RawClient.from_kubeconfig(yaml.safe_load(control_plane.kubeconfig().read_text())) as client:
        yield MPIJobClient(client, job_namespace)


@pytest.fixture
async def embedded(job_namespace: str) -> AsyncIterator[MPIJobClient]:
    server = ApiServer(crds=[DEFINITION], auto_namespaces=True)
    await server.start()
    async with RawClient(server.url, server.token) as client:
        yield MPIJobClient(client, job_namespace)
    await server.stop()


@pytest.fixture(params=["embedded", "real"])
def mpi_jobs(request: pytest.FixtureRequest, embedded: MPIJobClient, real: MPIJobClient) -> MPIJobClient:
    return embedded if request.param == "embedded" else real


@dataclass
class Case:
    """A job to be born in one version and written through another."""

    mpi_jobs: MPIJobClient
    born: str
    other: str
    body: Object

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    async def create(self) -> Object:
        reply = await self.mpi_jobs.create(self.born, self.body)
        assert reply.code == 201, reply.text
        return dict(reply.body)

    async def read(self, version: str = "") -> Object:
        return await self.mpi_jobs.read(version or self.other, self.name)

    async def put(self, version: str, change: Callable[[Object], Object], part: str = "") -> Reply:
        """A whole object, made of what is read through that version."""
        await self.create()
        return await self.mpi_jobs.put(version, self.name, change(await self.read(version)), part)


Way = Callable[[Case], Awaitable[Reply]]


def with_slots(obj: Object) -> Object:
    return {**obj, "spec": {**obj["spec"], "slotsPerWorker": 3}}


def without_flavor(obj: Object) -> Object:
    return {**obj, "spec": {key: value for key, value in obj["spec"].items() if key != "flavor"}}


async def nulled(case: Case) -> Reply:
    return await case.mpi_jobs.create(case.born, {**case.body, "spec": {**case.body["spec"], "flavor": None}})


async def created(case: Case) -> Reply:
    return await case.mpi_jobs.create(case.born, case.body)


async def applied(case: Case) -> Reply:
    return await case.mpi_jobs.apply(case.born, case.body, "a")


async def applied_again(case: Case) -> Reply:
    await case.mpi_jobs.apply(case.born, case.body, "a")
    return await case.mpi_jobs.apply(case.born, with_slots(case.body), "a")


async def applied_as_other(case: Case) -> Reply:
    """The manifest's apiVersion has been changed, and nothing else."""
    await case.mpi_jobs.apply(case.born, case.body, "a")
    changed = {**with_slots(case.body), "apiVersion": f"kubeflow.org/{case.other}"}
    return await case.mpi_jobs.apply(case.other, changed, "a")


async def applied_by_another(case: Case) -> Reply:
    await case.create()
    part = {**case.body, "apiVersion": f"kubeflow.org/{case.other}", "spec": {"slotsPerWorker": 3}}
    part["spec"]["mpiReplicaSpecs"] = {"Worker": {"replicas": 2}}
    return await case.mpi_jobs.apply(case.other, part, "b")


async def applied_with_and_without(case: Case) -> Reply:
    said = {**case.body, "spec": {**case.body["spec"], "flavor": case.born}}
    await case.mpi_jobs.apply(case.born, said, "a")
    return await case.mpi_jobs.apply(case.born, with_slots(case.body), "a")


async def merged(case: Case) -> Reply:
    await case.create()
    return await case.mpi_jobs.merge(case.other, case.name, {"spec": {"slotsPerWorker": 3}})


async def patched(case: Case) -> Reply:
    await case.create()
    operations = [{"op": "replace", "path": "/spec/slotsPerWorker", "value": 3}]
    return await case.mpi_jobs.send(
        "PATCH", case.mpi_jobs.path(case.other, case.name), operations, media=JSON_PATCH
    )


async def put_as_read(case: Case) -> Reply:
    return await case.put(case.other, with_slots)


async def put_without(case: Case) -> Reply:
    return await case.put(case.born, lambda job: without_flavor(with_slots(job)))


async def put_without_through_other(case: Case) -> Reply:
    return await case.put(case.other, lambda job: without_flavor(with_slots(job)))


async def typed_put(case: Case) -> Reply:
    return await case.put(case.born, lambda job: typed(case.born, with_slots(job)))


async def typed_put_through_other(case: Case) -> Reply:
    return await case.put(case.other, lambda job: typed(case.other, with_slots(job)))


async def typed_merge(case: Case) -> Reply:
    """A typed client patches by the difference between two of its own copies: this is how Kueue starts and stops jobs."""
    await case.create()
    return await case.mpi_jobs.merge(
        case.other, case.name, {"spec": {"slotsPerWorker": 3, "runPolicy": {"suspend": False}}}
    )


async def typed_status(case: Case) -> Reply:
    """UpdateStatus sends the whole object; only its status counts."""
    status = {
        "conditions": [{"type": "Created", "status": "True"}],
        "replicaStatuses": {"Worker": {"active": 1}},
    }
    return await case.put(case.other, lambda job: {**typed(case.other, job), "status": status}, "status")


async def our_status(case: Case) -> Reply:
    """As the operator writes it, through the stored version."""
    made = await case.create()
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "add", "path": "/status", "value": {"conditions": [{"type": "Created", "status": "True"}]}},
    ]
    return await case.mpi_jobs.send(
        "PATCH", case.mpi_jobs.path("v1", case.name, "status"), operations, media=JSON_PATCH
    )


async def flavor_removed(case: Case) -> Reply:
    await case.create()
    operations = [{"op": "remove", "path": "/spec/flavor"}]
    return await case.mpi_jobs.send(
        "PATCH", case.mpi_jobs.path(case.other, case.name), operations, media=JSON_PATCH
    )


async def flavor_changed(case: Case) -> Reply:
    await case.create()
    return await case.mpi_jobs.merge(case.born, case.name, {"spec": {"flavor": case.other}})


async def exported(case: Case) -> Reply:
    """As it is served in the preferred version, deleted, and created again: backups and GitOps do so."""
    await case.create()
    exported = await case.read("v1")
    exported["metadata"] = {"name": case.name}
    del exported["apiVersion"]
    await case.mpi_jobs.send("DELETE", case.mpi_jobs.path("v1", case.name))
    return await case.mpi_jobs.create("v1", {"apiVersion": "kubeflow.org/v1", **exported})


LOSSLESS_WAYS: list[tuple[Way, dict[str, Any]]] = [
    (created, {}), (nulled, {}), (applied, {}), (exported, {}), (typed_status, {}), (our_status, {}),
    *((way, {"slotsPerWorker": 3}) for way in (
        applied_again, applied_as_other, applied_by_another, applied_with_and_without, merged, patched, put_as_read, put_without,
        typed_put,
    )),
    (typed_merge, {"slotsPerWorker": 3, "suspend": False}),
]  # fmt: skip
"""Ways of writing, and what they change."""
REFUSED: list[Way] = [put_without_through_other, typed_put_through_other, flavor_removed, flavor_changed]


def case(mpi_jobs: MPIJobClient, born: str, other: str, way: str, **spec: Any) -> Case:
    name = f"{way.replace('_', '-')}-{born}-{other}-{secrets.token_hex(2)}"
    return Case(mpi_jobs, born, other, manifest(born, name, **spec))


@pytest.mark.parametrize(("way", "changed"), LOSSLESS_WAYS, ids=[way.__name__ for way, _ in LOSSLESS_WAYS])
async def test_no_field_is_lost(mpi_jobs: MPIJobClient, way: Way, changed: dict[str, Any]) -> None:
    for born, other in PAIRS:
        mpi_case = case(mpi_jobs, born, other, way.__name__)
        reply = await way(mpi_case)

        assert reply.code in {200, 201}, f"{born} through {other}: {reply.text}"
        policy = mpi_case.body["spec"]["runPolicy"] | {
            key: value for key, value in changed.items() if key == "suspend"
        }
        rest = {key: value for key, value in changed.items() if key != "suspend"}
        assert await mpi_jobs.losses(mpi_case.body, born, runPolicy=policy, **rest) == [], (
            f"{born} through {other}"
        )


@pytest.mark.parametrize("way", REFUSED, ids=[way.__name__ for way in REFUSED])
async def test_an_invalid_change_is_rejected(mpi_jobs: MPIJobClient, way: Way) -> None:
    """With the way out in the message; the job stays as it was."""
    for born, other in PAIRS:
        mpi_case = case(mpi_jobs, born, other, way.__name__)
        reply = await way(mpi_case)

        assert reply.code == 422, f"{born} through {other}: {reply.text}"
        assert FIXED in reply.body["message"]
        assert "spec.flavor: Invalid value" in reply.body["message"]
        assert await mpi_jobs.losses(mpi_case.body, born) == [], f"{born} through {other}"


MANAGERS = {
    "v1": "kubeflow.org/training-operator",
    "v2beta1": "kubeflow.org/mpi-operator",
    "v1alpha2": "kubeflow.org/mpi-operator",
}


@pytest.mark.parametrize("policy", [None, {"backoffLimit": 3}], ids=["no run policy", "a run policy"])
@pytest.mark.parametrize(
    "way", [way for way, _ in LOSSLESS_WAYS], ids=[way.__name__ for way, _ in LOSSLESS_WAYS]
)
async def test_the_manager_stays_that_of_the_version_of_birth(
    mpi_jobs: MPIJobClient, way: Way, policy: Object | None
) -> None:
    """So each Go operator takes the jobs of its own version, and no other."""
    for born, other in PAIRS:
        mpi_case = case(mpi_jobs, born, other, way.__name__, runPolicy=policy)
        reply = await way(mpi_case)

        assert reply.code in {200, 201}, f"{born} through {other}: {reply.text}"
        found = {view["runPolicy"]["managedBy"] for view in (await mpi_jobs.views(mpi_case.name)).values()}
        assert found == {MANAGERS[born]}, f"{born} through {other}"


async def test_an_explicit_manager_is_unchanged(mpi_jobs: MPIJobClient) -> None:
    for born, other in PAIRS:
        mpi_case = case(mpi_jobs, born, other, "named", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
        await mpi_case.create()
        await mpi_jobs.merge(other, mpi_case.name, {"spec": {"slotsPerWorker": 3}})

        assert await mpi_jobs.losses(mpi_case.body, born, slotsPerWorker=3) == []


@pytest.mark.parametrize("how", ["--server-side=false", "--server-side"])
async def test_defaults_cause_no_drift(
    control_plane: ControlPlane, real: MPIJobClient, tmp_path: Path, how: str
) -> None:
    """``kubectl diff`` uses a server-side dry run, as Flux and Argo CD do."""
    kubectl = [str(binaries.ensure(["kubectl"])["kubectl"]), f"--kubeconfig={control_plane.kubeconfig()}"]
    for version in VERSIONS:
        body = manifest(version, f"drift-{version}{how.replace('=', '-').lower()}", runPolicy=None)
        file = tmp_path / f"{version}.yaml"
        file.write_text(yaml.safe_dump(body))
        arguments = [f"--namespace={real.namespace}", how, f"--filename={file}"]
        applied = await finished(*kubectl, "apply", *arguments)
        assert applied[0] == 0, applied
        correction = {"spec": {"runPolicy": {"managedBy": MANAGERS[version]}}}
        for change in ({}, correction):  # as the server fills it in, then as the controller has written it
            await real.merge("v1", body["metadata"]["name"], change)
            assert await finished(*kubectl, "diff", *arguments) == (0, "")


async def finished(*command: str) -> tuple[int | None, str]:
    """Exit status and output of a command."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_a_flavor_can_be_chosen(mpi_jobs: MPIJobClient) -> None:
    for born, other in PAIRS:
        mpi_case = case(mpi_jobs, born, other, "chosen", flavor=other)
        await mpi_case.create()

        assert await mpi_jobs.losses(mpi_case.body, other) == []


async def test_a_typed_copy_has_the_flavor_of_its_version_unless_annotated(mpi_jobs: MPIJobClient) -> None:
    """MultiKueue copies name, labels, annotations and what its structs hold of the spec."""
    for marked, (born, other) in itertools.product([False, True], PAIRS):
        mpi_case = case(mpi_jobs, born, other, "copied")
        made = await mpi_case.create()
        annotations = {FLAVOR: born} if marked else {}
        copied = typed(
            other, {**made, "metadata": {"name": f"{mpi_case.name}-copy", "annotations": annotations}}
        )
        await mpi_jobs.create(other, copied)
        job = MPIJob.model_validate(await mpi_jobs.read("v1", f"{mpi_case.name}-copy"))

        assert job.spec.flavor == other
        assert flavor(job) is Flavor(born if marked else other)


def start_or_stop(job: Object, *, suspend: bool) -> Object:
    """What Kueue's copy of a job says of it: merge patches by typed clients hold whole lists."""
    roles = job["spec"]["mpiReplicaSpecs"]
    added = {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    taken = {"nodeSelector": {"pool": None}, "tolerations": None}
    changes = {
        role: {
            "template": {
                "spec": taken if suspend else added,
                "metadata": {"labels": {"queue": None if suspend else "a"}},
            }
        }
        for role in roles
    }
    return {"spec": {"runPolicy": {"suspend": suspend}, "mpiReplicaSpecs": changes}}


async def test_kueue_starts_and_stops_jobs_of_any_version(mpi_jobs: MPIJobClient) -> None:
    """It knows v2beta1 alone, and patches what is to run where."""
    for born in VERSIONS:
        mpi_case = case(mpi_jobs, born, "v2beta1", "kueue")
        await mpi_case.create()
        policy = mpi_case.body["spec"]["runPolicy"]
        for suspend in (True, False, True):
            reply = await mpi_jobs.merge(
                "v2beta1", mpi_case.name, start_or_stop(mpi_case.body, suspend=suspend)
            )
            assert reply.code == 200, reply.text
            assert await mpi_jobs.losses(mpi_case.body, born, runPolicy={**policy, "suspend": suspend}) == []
            worker = (await mpi_case.read())["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
            assert ("tolerations" in worker["spec"], "queue" in worker["metadata"]["labels"]) == (
                not suspend,
            ) * 2


async def test_an_empty_patch_changes_nothing(mpi_jobs: MPIJobClient) -> None:
    for born, other in PAIRS:
        mpi_case = case(mpi_jobs, born, other, "empty")
        await mpi_case.create()
        first = await mpi_jobs.merge("v1", mpi_case.name, {})
        again = await mpi_jobs.merge("v1", mpi_case.name, {})

        assert again.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
        assert await mpi_jobs.losses(mpi_case.body, born) == []


async def test_a_list_and_a_watch_in_a_version_have_jobs_of_all_versions(mpi_jobs: MPIJobClient) -> None:
    names = {}
    for born in VERSIONS:
        mpi_case = case(mpi_jobs, born, born, "listed")
        await mpi_case.create()
        names[mpi_case.name] = born
    for version in VERSIONS:
        listed = (await mpi_jobs.send("GET", mpi_jobs.path(version))).body["items"]
        query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "30"}
        async with (
            asyncio.timeout(20),
            mpi_jobs.client.stream(mpi_jobs.path(version), query, "application/json") as lines,
        ):
            watched: dict[str, Object] = {}
            async for line in lines:
                watched_job = yaml.load(line, Loader=yaml.CSafeLoader)["object"]
                watched[watched_job["metadata"]["name"]] = watched_job
                if names.keys() <= watched.keys():
                    break

        for found in ({listed_job["metadata"]["name"]: listed_job for listed_job in listed}, watched):
            assert {name: found[name]["spec"]["flavor"] for name in names} == names
            assert {found[name]["apiVersion"] for name in names} == {f"kubeflow.org/{version}"}


WRONG = [
    ("slotsPerWorker", "two"), ("mainContainer", 1), ("runLauncherAsWorker", "yes"), ("mpiImplementation", "LAM"),
    ("mpiReplicaSpecs", {"Worker": {"replicas": "2"}}),
    ("mpiReplicaSpecs", {"Worker": {"template": {"spec": {"containers": [{"name": "a", "env": [{"name": 1}]}]}}}}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG)
async def test_wrong_values_are_rejected_in_each_version(
    mpi_jobs: MPIJobClient, field: str, value: Any
) -> None:
    for version in VERSIONS:
        body = {**manifest(version, "wrong"), "spec": {**manifest(version, "wrong")["spec"], field: value}}
        reply = await mpi_jobs.create(version, body)

        assert (reply.code, f"spec.{field}" in reply.body["message"]) == (422, True), reply.text


@pytest.mark.parametrize(
    "path", [("slotPerWorker",), ("mpiReplicaSpecs", "Worker", "template", "spec", "hostNetwrk")]
)
async def test_typos_are_named_in_each_version(mpi_jobs: MPIJobClient, path: tuple[str, ...]) -> None:
    for version in VERSIONS:
        body = manifest(version, "typo")
        node = body["spec"]
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = True
        strict = await mpi_jobs.create(version, body, fieldValidation="Strict")
        warned = await mpi_jobs.create(version, body, fieldValidation="Warn", dryRun="All")

        assert strict.code == 400, strict.text
        assert f'unknown field "spec.{".".join(path)}"' in strict.body["message"]
        assert (warned.code, len(warned.warnings)) == (201, 1), warned.text


GPU_NODE: Object = {
    "metadata": {
        "labels": {"job": "nccl"},
        "annotations": {"k8s.v1.cni.cncf.io/networks": '[{"name": "rail-0", "namespace": "multus"}]'},
    },
    "spec": {
        "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": "job-channel"}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 0}],
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "zone",
                            "labelSelector": {"matchLabels": {"job": "nccl"}},
                        },
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "minDomains": 2,
                "topologyKey": "rack",
                "whenUnsatisfiable": "DoNotSchedule",
                "matchLabelKeys": ["job"],
            }
        ],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
            {"name": "plugin", "hostPath": {"path": "/opt/plugin", "type": "Directory"}},
        ],
        "initContainers": [{"name": "side", "image": "x", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "nccl",
                "image": "nccl:1",
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "resources": {
                    "claims": [{"name": "channel", "request": "one"}],
                    "limits": {"nvidia.com/gpu": 8, "rdma/ib": 1, "memory": "960Gi"},
                    "requests": {"nvidia.com/gpu": 8, "cpu": "110"},
                },
                "volumeMounts": [
                    {"name": "shm", "mountPath": "/dev/shm"},
                    {"name": "plugin", "mountPath": "/p", "readOnly": True},
                ],
            }
        ],
    },
}
"""What jobs say on machines with eight GPUs and a fabric: device claims, further networks, limits without requests."""


async def test_templates_of_large_machines_are_stored_completely(mpi_jobs: MPIJobClient) -> None:
    for version in VERSIONS:
        name = f"gpus-{version}"
        body = manifest(
            version,
            name,
            mpiReplicaSpecs={"Launcher": {"template": template()}, "Worker": {"template": GPU_NODE}},
        )
        reply = await mpi_jobs.create(version, body, fieldValidation="Strict")

        assert reply.code == 201, reply.text
        assert await mpi_jobs.losses(body, version) == []


async def test_children_name_their_owner_in_any_version(real: MPIJobClient) -> None:
    """The garbage collector finds the owner in each served version, and takes the children with it."""
    owners = [case(real, born, born, "owner") for born in VERSIONS]
    maps, children = f"/api/v1/namespaces/{real.namespace}/configmaps", list[str]()
    for mpi_case, version in itertools.product(owners, VERSIONS):
        uid = (await mpi_case.create() if version == VERSIONS[0] else await mpi_case.read())["metadata"][
            "uid"
        ]
        owner = {"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob", "name": mpi_case.name, "uid": uid}
        body = {
            "metadata": {
                "name": f"{mpi_case.name}-{version}",
                "ownerReferences": [{**owner, "controller": True}],
            }
        }
        assert (await real.client.send(Step("POST", maps, body))).code == 201
        children.append(f"{maps}/{mpi_case.name}-{version}")

    async def there() -> set[int]:
        return {(await real.client.send(Step("GET", child))).code for child in children}

    await asyncio.sleep(1)
    assert await there() == {200}
    for mpi_case in owners:
        await real.send("DELETE", real.path(mpi_case.born, mpi_case.name), propagationPolicy="Background")
    async with asyncio.timeout(90):
        while await there() != {404}:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.2)


class Kubectl:
    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self._program = str(binaries.ensure(["kubectl"])["kubectl"])
        self._words = [f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", f"--cache-dir={folder}"]

    async def __call__(self, *words: str, given: Object | None = None, editor: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *(self._program, *self._words, *words),
            env={**os.environ, "KUBE_EDITOR": editor},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate(yaml.safe_dump(given).encode())
        return out.decode()


@pytest.mark.parametrize(("born", "other"), [PAIRS[0], PAIRS[3], PAIRS[4]])
async def test_kubectl_works_across_versions(
    control_plane: ControlPlane,
    real: MPIJobClient,
    tmp_path_factory: pytest.TempPathFactory,
    born: str,
    other: str,
) -> None:
    kubectl = Kubectl(control_plane.kubeconfig(), real.namespace, tmp_path_factory.getbasetemp() / "kubectl")
    mpi_case = case(real, born, other, "kubectl")
    changed = {**mpi_case.body, "apiVersion": f"kubeflow.org/{other}"}
    served_side = ("apply", "--server-side", "--force-conflicts", "-f", "-")

    assert "created" in await kubectl("apply", "-f", "-", given=mpi_case.body)
    assert "unchanged" in await kubectl("apply", "-f", "-", given=mpi_case.body)
    assert "configured" in await kubectl("apply", "-f", "-", given=changed)
    assert "serverside-applied" in await kubectl(*served_side, given=mpi_case.body)
    assert "serverside-applied" in await kubectl(*served_side, given=changed)
    assert "labeled" in await kubectl("label", f"mpijobs.{other}.kubeflow.org/{mpi_case.name}", "a=b")
    edited = await kubectl(
        "edit",
        f"mpijobs.{other}.kubeflow.org/{mpi_case.name}",
        editor="sed -i s/slotsPerWorker:.2/slotsPerWorker:\\ 3/",
    )
    assert "edited" in edited
    assert await real.losses(mpi_case.body, born, slotsPerWorker=3) == []

    assert "replaced" in await kubectl("replace", "-f", "-", given=mpi_case.body)
    assert FIXED in await kubectl("replace", "-f", "-", given=changed)
    assert await real.losses(mpi_case.body, born) == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_fields_are_explained(
    control_plane: ControlPlane, real: MPIJobClient, tmp_path_factory: pytest.TempPathFactory, version: str
) -> None:
    kubectl = Kubectl(control_plane.kubeconfig(), real.namespace, tmp_path_factory.getbasetemp() / "kubectl")

    explanation = await kubectl("explain", "mpijobs", "--recursive", f"--api-version=kubeflow.org/{version}")

    for field in (
        "flavor",
        "sshAuthMountPath",
        "mainContainer",
        "mpiDistribution",
        "resources",
        "hostNetwork",
    ):
        assert f"{field}\t<" in explanation, field


def texts(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


COUNT = st.integers(0, 2**31 - 1)
WORD = st.text("abcdefghij", min_size=1, max_size=5)
QUANTITY = st.one_of(st.integers(0, 99), texts("1", "500m", "2Gi"))
ENV = st.lists(WORD, unique=True, max_size=3).map(
    lambda names: [{"name": name, "value": "v"} for name in names]
)
TEMPLATE = st.builds(
    lambda env, limits, spec: (
        template(**spec) | {"metadata": {"annotations": limits}} if not env else with_env(env, spec)
    ),
    ENV,
    st.dictionaries(WORD, WORD, max_size=2),
    st.fixed_dictionaries(
        {},
        optional={
            "hostNetwork": st.booleans(),
            "nodeSelector": st.dictionaries(WORD, WORD),
            "schedulerName": WORD,
        },
    ),
)
RESTART_POLICY = texts("Never", "OnFailure", "Always", "ExitCode")
ROLES = st.fixed_dictionaries(
    {
        "Launcher": st.fixed_dictionaries(
            {"template": TEMPLATE}, optional={"replicas": st.just(1), "restartPolicy": RESTART_POLICY}
        )
    },
    optional={
        "Worker": st.fixed_dictionaries(
            {"template": TEMPLATE}, optional={"replicas": COUNT, "restartPolicy": RESTART_POLICY}
        )
    },
)
"""Roles that no rule of the definition refuses."""
SCHEDULING = st.fixed_dictionaries(
    {},
    optional={
        "minAvailable": COUNT, "queue": WORD, "minResources": st.dictionaries(WORD, QUANTITY), "priorityClass": WORD,
        "scheduleTimeoutSeconds": COUNT,
    },
)  # fmt: skip
RUN_POLICY = st.fixed_dictionaries(
    {},
    optional={
        "cleanPodPolicy": texts("All", "None", "Running"), "ttlSecondsAfterFinished": COUNT,
        "activeDeadlineSeconds": st.integers(0, 2**63 - 1), "backoffLimit": COUNT, "suspend": st.booleans(), "managedBy": WORD,
        "schedulingPolicy": SCHEDULING,
    },
)  # fmt: skip
SPEC = st.fixed_dictionaries(
    {"mpiReplicaSpecs": ROLES},
    optional={
        "slotsPerWorker": COUNT, "cleanPodPolicy": texts("All", "None", "Running"), "mainContainer": WORD, "backoffLimit": COUNT,
        "activeDeadlineSeconds": COUNT, "mpiDistribution": texts("OpenMPI", "IntelMPI", "MPICH", "odd"),
        "runPolicy": RUN_POLICY, "runLauncherAsWorker": st.booleans(), "sshAuthMountPath": WORD,
        "launcherCreationPolicy": WORD, "mpiImplementation": texts("OpenMPI", "Intel", "MPICH"),
    },
)  # fmt: skip


def with_env(env: list[Object], spec: Object) -> Object:
    made = template(**spec)
    made["spec"]["containers"][0]["env"] = env
    return made


@pytest.fixture(scope="module")
def running(control_plane: ControlPlane, job_namespace: str) -> Iterator[tuple[asyncio.Runner, MPIJobClient]]:
    """The real server on a loop of its own, for as long as examples are drawn."""
    with asyncio.Runner() as runner:

        async def connect() -> RawClient:
            return RawClient.from_kubeconfig(yaml.safe_load(control_plane.kubeconfig().read_text()))

        client = runner.run(connect())
        yield runner, MPIJobClient(client, job_namespace)
        runner.run(client.__aexit__())


@settings(max_examples=10)
@given(
    jobs=st.lists(
        st.tuples(SPEC, st.sampled_from(VERSIONS), st.permutations(VERSIONS)), min_size=10, max_size=10
    )
)
def test_any_spec_survives_any_version(
    running: tuple[asyncio.Runner, MPIJobClient], jobs: list[tuple[Object, str, list[str]]]
) -> None:
    """A hundred jobs, ten at once."""
    runner, mpi_jobs = running

    async def all_of_them() -> None:
        await asyncio.gather(*(round_trip(mpi_jobs, *job) for job in jobs))

    runner.run(all_of_them())


async def round_trip(mpi_jobs: MPIJobClient, spec: Object, born: str, order: list[str]) -> None:
    """Created in one version, read in all, then put back as it is read and patched through all, and read in all again."""
    body = {**manifest(born, f"any-{secrets.token_hex(5)}"), "spec": copy.deepcopy(spec)}
    made = await mpi_jobs.create(born, body)
    assert made.code == 201, made.text
    assert await mpi_jobs.losses(body, born) == []
    for version in order:
        put = await mpi_jobs.put(
            version, body["metadata"]["name"], await mpi_jobs.read(version, body["metadata"]["name"])
        )
        merged = await mpi_jobs.merge(
            version, body["metadata"]["name"], {"metadata": {"labels": {"by": version}}}
        )
        assert (put.code, merged.code) == (200, 200), put.text + merged.text
    assert await mpi_jobs.losses(body, born) == []
    await mpi_jobs.send("DELETE", mpi_jobs.path("v1", body["metadata"]["name"]))


def test_the_manifests_of_this_file_have_every_field() -> None:
    """The manifests have all fields but the flavor, so no field stays untested."""
    fields = {name for version in VERSIONS for name in OWN[version]} | {
        "slotsPerWorker",
        "mpiReplicaSpecs",
        "flavor",
    }
    model = {field.alias for field in MPIJobSpec.model_fields.values()}

    assert fields == model
