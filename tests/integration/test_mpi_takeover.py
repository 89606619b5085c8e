"""MPIJobs that a Go operator stored under its own definition, after a takeover and a rollback.

Each test has an API group of its own on the shared server, with the very definition that we ship but for that name; so definitions
can come and go. Also here: what webhooks and admission policies make of jobs.
"""

import asyncio
import base64
import contextlib
import os
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web

from api.meta import Resource
from api.mpijob import FLAVOR, RESOURCE, Flavor, MPIJob, flavor
from controller.crds.definition import crd
from controller.crds.kubernetes import shipped
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from controller.runtime.migration import DEFINITIONS, migrate
from rallypoint.local.apiserver.serving.certificates import identity
from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.http_trace import MERGE, RawClient, Reply, Step
from rallypoint.testing.manifests import build
from tests.support.json_differences import differences
from tests.support.mpiversions import (
    OWN,
    PLURAL,
    VERSIONS,
    MPIJobClient,
    Object,
    manifest,
    typed,
)

POLICIES = Path(__file__).parents[2] / "manifests" / "components" / "mpi-flavor-policy"
GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "mpijob-versions.md"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITION = crd(RESOURCE, MPIJob, shipped())
KINDS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass
class Cluster:
    """A group of its own on the real server, and what is installed in it."""

    mpi_jobs: MPIJobClient
    client: Client

    @property
    def resource(self) -> Resource:
        return replace(RESOURCE, group=self.mpi_jobs.group)

    @property
    def definition(self) -> str:
        return f"{DEFINITIONS.path()}/{PLURAL}.{self.mpi_jobs.group}"

    async def install(self, versions: list[Object]) -> Reply:
        """Serve these versions instead of those that were there."""
        there = await self.mpi_jobs.client.send(Step("GET", self.definition))
        name = {"name": f"{PLURAL}.{self.mpi_jobs.group}"}
        spec = {**DEFINITION["spec"], "group": self.mpi_jobs.group, "versions": versions}
        body = {**DEFINITION, "metadata": name, "spec": spec}
        if there.code == 404:
            return await self.mpi_jobs.client.send(Step("POST", DEFINITIONS.path(), body))
        return await self.mpi_jobs.client.send(Step("PATCH", self.definition, {"spec": spec}, type=MERGE))

    async def until(self, what: str, holds: Callable[[], Any]) -> None:
        try:
            async with asyncio.timeout(60):
                while not await holds():  # noqa: ASYNC110 - it happens in another process
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(what) from None

    async def serve(self, versions: list[Object], *, as_: Callable[[], Any] | None = None) -> None:
        """``install``, and wait until it is so: by default, until the first of them answers."""
        reply = await self.install(versions)
        assert reply.code in {200, 201}, reply.text
        names = {version["name"] for version in versions}

        async def is_served() -> bool:
            found = {
                version: (await self.mpi_jobs.client.send(Step("GET", self.mpi_jobs.path(version)))).code
                == 200
                for version in VERSIONS
            }
            return found == {version: version in names for version in VERSIONS}

        await self.until("versions served", as_ or is_served)

    async def storage_hash(self) -> str:
        """Return the storage version that the server's discovery shows."""
        listed = await self.mpi_jobs.client.send(Step("GET", f"/apis/{self.mpi_jobs.group}/v1"))
        return next(
            str(resource["storageVersionHash"])
            for resource in listed.body["resources"]
            if resource["name"] == PLURAL
        )

    async def stored_versions(self) -> list[str]:
        return list(
            (await self.mpi_jobs.client.send(Step("GET", self.definition))).body["status"]["storedVersions"]
        )


@pytest.fixture
async def raw_client(control_plane: ControlPlane) -> AsyncIterator[RawClient]:
    async with RawClient.from_kubeconfig(yaml.safe_load(control_plane.kubeconfig().read_text())) as client:
        yield client


@pytest.fixture
async def cluster(control_plane: ControlPlane, raw_client: RawClient) -> AsyncIterator[Cluster]:
    group = f"g{secrets.token_hex(4)}.example.com"
    async with Client(await from_kubeconfig(str(control_plane.kubeconfig()))) as client:
        made = Cluster(MPIJobClient(raw_client, "default", group), client)
        yield made
        await raw_client.send(Step("DELETE", made.definition))


def ours(storage: str = "v1") -> list[Object]:
    return [{**version, "storage": version["name"] == storage} for version in DEFINITION["spec"]["versions"]]


def original(version: str) -> list[Object]:
    """A definition as one of the Go operators has it: one version, its own fields, its own defaults, nulls for v1alpha2."""
    policy: Object = {**OPEN, "nullable": version == "v1alpha2"}
    fields: Object = {name: {"x-kubernetes-preserve-unknown-fields": True} for name in OWN[version]}
    fields |= {"mpiReplicaSpecs": OPEN, "slotsPerWorker": {"type": "integer"}, "runPolicy": policy}
    if version == "v2beta1":
        fields["sshAuthMountPath"] = {"type": "string", "default": "/root/.ssh"}
        fields["slotsPerWorker"]["default"] = 1
    conditions = {"type": "array", "nullable": version == "v1alpha2", "items": OPEN}
    status = {"type": "object", "properties": {"conditions": conditions, "replicaStatuses": policy}}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": fields}, "status": status},
    }
    return [
        {
            "name": version,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        }
    ]


async def left_behind(cluster: Cluster, version: str) -> list[Object]:
    """Two jobs stored under the original's definition, one of them with the nulls that it stored."""
    await cluster.serve(original(version))
    jobs = [manifest(version, name) for name in ("one", "two")]
    for job in jobs:
        assert (await cluster.mpi_jobs.create(version, job)).code == 201
    if version == "v1alpha2":
        poor = manifest(version, "poor", runPolicy=None)
        del poor["spec"]["mpiReplicaSpecs"]["Worker"]
        body = {**poor, "spec": {**poor["spec"], "runPolicy": None}}
        assert (await cluster.mpi_jobs.create(version, body)).code == 201
        status = {"status": {"conditions": None, "replicaStatuses": None, "startTime": None}}
        await cluster.mpi_jobs.put(
            version, "poor", {**await cluster.mpi_jobs.read(version, "poor"), **status}, "status"
        )
        jobs.append(poor)
    return jobs


@pytest.mark.parametrize("version", VERSIONS)
async def test_stored_jobs_are_taken_over(cluster: Cluster, version: str) -> None:
    """Jobs are read in all versions before any write, then written through each version, then migrated."""
    mpi_jobs, others = (
        cluster.mpi_jobs,
        [version_name for version_name in VERSIONS if version_name != version],
    )
    jobs = await left_behind(cluster, version)
    before = {job["metadata"]["name"]: await mpi_jobs.read(version, job["metadata"]["name"]) for job in jobs}
    await cluster.serve(ours())

    for job in jobs:
        assert await mpi_jobs.losses(job, version) == []
        read = await mpi_jobs.read("v1", job["metadata"]["name"])
        assert (
            read["metadata"]["resourceVersion"]
            == before[read["metadata"]["name"]]["metadata"]["resourceVersion"]
        )
        assert None not in [*read["spec"].values(), *read.get("status", {}).values()]
    assert await cluster.stored_versions() == list(dict.fromkeys([version, "v1"]))
    refused = await cluster.install([entry for entry in ours() if entry["name"] != version])
    assert refused.code == 422, refused.text

    for other in others:
        refused = await mpi_jobs.put(other, "one", typed(other, await mpi_jobs.read(other, "one")))
        patched = await mpi_jobs.merge(other, "one", {"spec": {"runPolicy": {"suspend": False}}})
        assert (refused.code, patched.code) == (422, 200), refused.text + patched.text
    written = await migrate(cluster.client, cluster.resource, settled_seconds=0)

    assert written == (0 if version == "v1" else len(jobs))
    assert await cluster.stored_versions() == ["v1"]
    for job in jobs:
        policy = job["spec"].get("runPolicy", {}) | ({"suspend": False} if job is jobs[0] else {})
        assert await mpi_jobs.losses(job, version, **({"runPolicy": policy} if policy else {})) == []
    if version == "v2beta1":
        # Nothing needs the version any more that they came from.
        await cluster.serve([entry for entry in ours() if entry["name"] != version])
        read = await mpi_jobs.read("v1", "two")
        wanted = {**jobs[1]["spec"], "flavor": version}
        assert list(differences(wanted, read["spec"], additions=False)) == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_manager_of_a_stored_job_shows_before_a_write(cluster: Cluster, version: str) -> None:
    """Each Go operator leaves the jobs of the other alone from the moment when our definition is there."""
    mpi_jobs = cluster.mpi_jobs
    await cluster.serve(original(version))
    for name, policy in (("bare", None), ("multi", {"managedBy": "kueue.x-k8s.io/multikueue"})):
        assert (await mpi_jobs.create(version, manifest(version, name, runPolicy=policy))).code == 201
    await cluster.serve(ours())
    own = "kubeflow.org/training-operator" if version == "v1" else "kubeflow.org/mpi-operator"

    for written in (False, True):
        if written:
            await migrate(cluster.client, cluster.resource, settled_seconds=0)
        for name, manager in (("bare", own), ("multi", "kueue.x-k8s.io/multikueue")):
            found = {view["runPolicy"]["managedBy"] for view in (await mpi_jobs.views(name)).values()}
            assert found == {manager}, f"{name}, written: {written}"


def commands(heading: str) -> list[str]:
    """Those under a heading of the guide."""
    section = GUIDE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line.strip() for line in section.splitlines() if re.match(" *kubectl ", line)]


async def shell(plane: ControlPlane, command: str, cluster: Cluster) -> None:
    """A line of the guide, for this cluster's group."""
    path = f"{binaries.ensure(['kubectl'])['kubectl'].parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-ec", command.replace("mpijobs.kubeflow.org", f"{PLURAL}.{cluster.mpi_jobs.group}")),
        env={**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, f"{command}: {out.decode()}"


async def test_jobs_survive_a_rollback_and_another_takeover(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    """To mpi-operator: refused until all is stored in its version; the annotation keeps what its definition does not know."""
    mpi_jobs = cluster.mpi_jobs
    await cluster.serve(ours())
    jobs = {version: manifest(version, f"born-{version}") for version in VERSIONS}
    for version, job in jobs.items():
        await mpi_jobs.create(version, job)
    straight = await cluster.install(original("v2beta1"))
    assert straight.code == 422
    assert "spec.versions" in straight.text

    swap, *others = commands("Back to mpi-operator's CRD")[1:]
    before = await cluster.storage_hash()
    await shell(control_plane, swap, cluster)

    async def is_stored_otherwise() -> bool:
        return await cluster.storage_hash() != before

    await cluster.until("definition taken up", is_stored_otherwise)
    for command in others:
        await shell(control_plane, command, cluster)
    assert await cluster.stored_versions() == ["v2beta1"]
    for version, job in jobs.items():
        assert await mpi_jobs.losses(job, version) == []
    await cluster.serve(original("v2beta1"))
    await mpi_jobs.merge("v2beta1", "born-v1", {"spec": {"slotsPerWorker": 4}})  # the original at work
    await cluster.serve(ours())

    for version in VERSIONS:
        read = MPIJob.model_validate(await mpi_jobs.read("v1", f"born-{version}"))
        assert flavor(read) is Flavor(version)
    assert await mpi_jobs.losses(jobs["v2beta1"], "v2beta1") == []


@contextlib.asynccontextmanager
async def admitting(
    cluster: Cluster, answer: Callable[[Object], list[Object]]
) -> AsyncGenerator[list[Object]]:
    """Install a mutating webhook for jobs created in v2beta1, like Kueue's; yield its reviews."""
    reviews: list[Object] = []
    shown = identity(datetime.now(UTC))

    async def handle(request: web.Request) -> web.Response:
        review = await request.json()
        reviews.append(review["request"])
        changes = orjson.dumps(answer(review["request"]["object"]))
        response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
        encoded = base64.b64encode(changes).decode()
        return web.json_response({**review, "response": {**response, "patch": encoded}})

    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    mpi_jobs = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=shown.tls)
    await mpi_jobs.start()
    host, port = runner.addresses[0][:2]
    name = cluster.mpi_jobs.group
    rule = {"apiGroups": [name], "apiVersions": ["v2beta1"], "operations": ["CREATE"], "resources": [PLURAL]}
    webhook = {
        "name": f"mpi.{name}",
        "clientConfig": {
            "url": f"https://{host}:{port}/",
            "caBundle": base64.b64encode(shown.authority).decode(),
        },
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    path, client = f"{ADMISSION}/mutatingwebhookconfigurations", cluster.mpi_jobs.client
    made = await client.send(Step("POST", path, {"metadata": {"name": name}, "webhooks": [webhook]}))
    assert made.code == 201, made.text
    try:

        async def is_called() -> bool:
            await cluster.mpi_jobs.create("v2beta1", manifest("v2beta1", "probe"), dryRun="All")
            return bool(reviews)

        await cluster.until("the webhook is called", is_called)
        reviews.clear()
        yield reviews
    finally:
        await client.send(Step("DELETE", f"{path}/{name}"))
        await runner.cleanup()


def suspending(job: Object) -> list[Object]:
    """Kueue: the change and nothing else."""
    return [{"op": "replace", "path": "/spec/runPolicy/suspend", "value": False}]


def dropping(job: Object) -> list[Object]:
    """Older webhooks: the whole object, as their structs have it."""
    return [{"op": "replace", "path": "/spec", "value": typed("v2beta1", job)["spec"]}]


async def test_a_webhook_for_a_single_version_changes_no_flavor(cluster: Cluster) -> None:
    """The webhook reviews jobs of all versions. The defaults of v2beta1 are stored then; nothing is lost."""
    await cluster.serve(ours())
    async with admitting(cluster, suspending) as reviews:
        for version in VERSIONS:
            job = manifest(version, f"job-{version}")
            job["spec"]["runPolicy"] = {**job["spec"]["runPolicy"], "suspend": True}
            assert (await cluster.mpi_jobs.create(version, job)).code == 201

            changed = {**job["spec"]["runPolicy"], "suspend": False}
            assert await cluster.mpi_jobs.losses(job, version, runPolicy=changed) == []
    assert [review["requestKind"]["version"] for review in reviews] == list(VERSIONS)
    assert {review["kind"]["version"] for review in reviews} == {"v2beta1"}


async def test_the_annotation_repairs_a_webhook_that_drops_fields(cluster: Cluster) -> None:
    """The fields are lost; the flavor stays."""
    await cluster.serve(ours())
    async with admitting(cluster, dropping):
        for version in VERSIONS:
            job = manifest(version, f"job-{version}")
            job["metadata"]["annotations"] = {FLAVOR: version}
            await cluster.mpi_jobs.create(version, job)
            read = MPIJob.model_validate(await cluster.mpi_jobs.read("v1", f"job-{version}"))

            assert read.spec.flavor == "v2beta1"
            assert flavor(read) is Flavor(version)


@contextlib.asynccontextmanager
async def policies(cluster: Cluster) -> AsyncGenerator[None]:
    """The shipped policies, for this cluster's group."""
    client, made = cluster.mpi_jobs.client, list[str]()
    for document in build(POLICIES):
        policy = orjson.loads(
            orjson.dumps(document).replace(b'"mpi-flavor-', f'"{cluster.mpi_jobs.group}-'.encode())
        )
        if policy["kind"] == "MutatingAdmissionPolicy":
            policy["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = [cluster.mpi_jobs.group]
        path = f"{ADMISSION}/{KINDS[policy['kind']]}"
        reply = await client.send(Step("POST", path, policy))
        assert reply.code == 201, reply.text
        made.append(f"{path}/{policy['metadata']['name']}")
    try:

        async def is_carried() -> bool:
            probe = await cluster.mpi_jobs.create("v1", manifest("v1", "probe"), dryRun="All")
            return FLAVOR in probe.body["metadata"].get("annotations", {})

        await cluster.until("policies at work", is_carried)
        yield
    finally:
        for path in made:
            await client.send(Step("DELETE", path))


@pytest.mark.newest  # of admissionregistration.k8s.io/v1, which 1.36 is the first to serve
async def test_the_policies_repair_what_typed_clients_put_and_copy(cluster: Cluster) -> None:
    await cluster.serve(ours())
    mpi_jobs = cluster.mpi_jobs
    async with policies(cluster):
        for version in VERSIONS:
            for other in VERSIONS:
                job = manifest(version, f"put-{version}-{other}")
                made = await mpi_jobs.create(version, job)
                assert made.body["metadata"]["annotations"] == {FLAVOR: version}

                put = await mpi_jobs.put(
                    other,
                    job["metadata"]["name"],
                    typed(other, await mpi_jobs.read(other, job["metadata"]["name"])),
                )
                assert put.code == 200, f"{version} through {other}: {put.text}"
                lost = await mpi_jobs.losses(job, version)
                assert lost == [], f"{version} through {other}"

                copied = typed(other, made.body)
                copied["metadata"] = {
                    "name": f"copy-{version}-{other}",
                    "annotations": made.body["metadata"]["annotations"],
                }
                await mpi_jobs.create(other, copied)
                read = await mpi_jobs.read("v1", f"copy-{version}-{other}")
                assert read["spec"]["flavor"] == version

        # A flavor that a user sets is not the default of a request's version.
        await mpi_jobs.create("v1", manifest("v1", "named"))
        changed = await mpi_jobs.merge("v1", "named", {"spec": {"flavor": "v2beta1"}})
        chosen = await mpi_jobs.create("v1", manifest("v1", "chosen", flavor="v2beta1"))
        assert changed.code == 422
        assert chosen.body["spec"]["flavor"] == "v2beta1"
        assert chosen.body["metadata"]["annotations"] == {FLAVOR: "v2beta1"}
