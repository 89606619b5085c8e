"""v1 jobs on the embedded API server: the calls they take and conflicts of names."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from api.meta import CONFIG_MAPS, EVENTS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource
from api.mpijob import RESOURCE
from controller.reconcile import jobs
from controller.runtime import clock
from tests.support.faults import Cut, Refuse, Reset, Rule
from tests.support.harness import TEST_SETTINGS, Harness, fake_clock, running_controller, start_harness
from tests.support.mpi import container

SETTINGS = replace(TEST_SETTINGS, enable_scheme=(RESOURCE.kind,))


class Play:
    """The user and the kubelet of the job ``hvd``."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    async def submit(self, workers: int = 2, version: str = "v1", **launcher: Any) -> None:
        roles = {
            "Launcher": {"template": {"spec": {"containers": [container()], **launcher}}},
            "Worker": {"replicas": workers, "template": {"spec": {"containers": [container()]}}},
        }
        body = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "metadata": {"name": "hvd"}}
        await self.harness.create(RESOURCE, {**body, "spec": {"mpiReplicaSpecs": roles, "flavor": version}})
        await self.harness.settle(2)

    async def set_phase(self, phase: str, *names: str) -> None:
        """These pods get to that phase, and are ready if it is Running; all if none is named, the launcher last."""
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        for name in names or reversed(await self.harness.names(PODS)):
            status: dict[str, Any] = {"phase": phase, "conditions": [ready]}
            if phase == "Running":
                since = {"startedAt": clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
                known = {"name": "mpi", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
                status["containerStatuses"] = [{**known, "state": {"running": since}}]
            await self.harness.change(PODS, name, {"status": status}, "status")
        await self.harness.settle(10)

    async def conditions(self) -> str:
        status = (await self.harness.get(RESOURCE, "hvd")).get("status") or {}
        return ", ".join(
            f"{condition['type']} {condition['status'][0]}" for condition in status.get("conditions") or ()
        )

    async def named(self) -> list[str]:
        """The pods that the launcher may run ranks in; none without a Role."""
        if "hvd-launcher" not in await self.harness.names(ROLES):
            return []
        rules = (await self.harness.get(ROLES, "hvd-launcher")).get("rules") or []
        return [
            name for rule in rules for name in rule["resourceNames"] if rule["resources"] == ["pods/exec"]
        ]

    async def reasons(self) -> set[str]:
        return {event["reason"] for event in await self.harness.items(EVENTS)}


@asynccontextmanager
async def playing(*rules: Rule, settings: Any = SETTINGS) -> AsyncIterator[Play]:
    with fake_clock() as now:
        async with (
            start_harness(*rules, crds=(RESOURCE,), clock=now) as harness,
            running_controller(harness, settings),
        ):
            await harness.settle()
            harness.faults.calls.clear()
            yield Play(harness)


@pytest.mark.parametrize("workers", [1, 8, 64])
async def test_a_successful_job_takes_a_fixed_number_of_calls(workers: int) -> None:
    """The calls are a create for each child, another write of the hosts, a grant and a revocation, three statuses and a name lookup."""
    async with playing(settings=replace(SETTINGS, events="off")) as it:
        await it.submit(workers)
        await it.set_phase("Running")
        await it.set_phase("Succeeded", "hvd-launcher")
        counts = Counter((call.verb, call.plural) for call in it.harness.calls if call.verb != "watch")

        assert await it.conditions() == "Created T, Running F, Succeeded T"
        assert counts == {
            ("create", "pods"): workers + 1,
            ("create", "serviceaccounts"): 1,
            ("create", "configmaps"): 1,
            ("create", "roles"): 1,
            ("create", "rolebindings"): 1,
            ("get", "pods"): 1,
            ("patch", "configmaps"): 1,
            ("patch", "roles"): 2,
            ("patch", "mpijobs"): 3,
        }


def foreign(resource: Resource, name: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
    }
    if resource == PODS:
        body["spec"] = {"containers": [container()]}
    if resource == ROLE_BINDINGS:
        body["roleRef"] = {"apiGroup": ROLES.group, "kind": "Role", "name": "another"}
    return body


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (SERVICE_ACCOUNTS, "hvd-launcher"),
        (CONFIG_MAPS, "hvd-config"),
        (ROLES, "hvd-launcher"),
        (ROLE_BINDINGS, "hvd-launcher"),
        (PODS, "hvd-launcher"),
        (PODS, "hvd-worker-1"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
async def test_a_name_conflict_blocks_the_job(resource: Resource, name: str) -> None:
    """The operator grants no permission and creates no worker; the job names the conflict and continues when the name is free."""
    async with playing() as it:
        before = await it.harness.create(resource, foreign(resource, name))
        await it.submit()
        await it.harness.settle(20)

        assert "ErrResourceExists" in await it.reasons()
        assert await it.conditions() == "Running F, Created T"
        left = await it.harness.get(resource, name)
        assert left["metadata"]["uid"] == before["metadata"]["uid"]
        tried = {("create", "pods")} & {(call.verb, call.plural) for call in it.harness.calls}
        assert not tried or name == "hvd-worker-1"
        assert await it.named() == []

        await it.harness.delete(resource, name, grace_period_seconds=0)
        await it.harness.settle(400)
        await it.set_phase("Running")
        assert await it.named() == ["hvd-worker-0", "hvd-worker-1"]
        assert await it.conditions() == "Created T, Running T"


async def test_a_worker_whose_name_is_taken_meanwhile_is_not_in_the_role() -> None:
    """Somebody is quicker than this controller: a pod of his gets no visit from the launcher."""
    async with playing() as it:
        await it.submit()
        await it.set_phase("Running")
        it.harness.faults.rules.append(Rule(Refuse(403, "Forbidden", "quota"), verb="create", plural="pods"))
        await it.harness.delete(PODS, "hvd-worker-1", grace_period_seconds=0)
        await it.harness.settle(2)
        await it.harness.create(PODS, foreign(PODS, "hvd-worker-1"))
        it.harness.faults.rules.clear()
        await it.harness.settle(200)

        assert await it.named() == ["hvd-worker-0"]
        assert "ErrResourceExists" in await it.reasons()


async def test_an_account_that_the_template_names_is_used_unchanged() -> None:
    async with playing() as it:
        before = await it.harness.create(SERVICE_ACCOUNTS, foreign(SERVICE_ACCOUNTS, "trainer"))
        await it.submit(serviceAccountName="trainer")

        binding = await it.harness.get(ROLE_BINDINGS, "hvd-launcher")
        assert [subject["name"] for subject in binding["subjects"]] == ["trainer"]
        assert (await it.harness.get(SERVICE_ACCOUNTS, "trainer"))["metadata"] == before["metadata"]
        assert "hvd-launcher" not in await it.harness.names(SERVICE_ACCOUNTS)


@pytest.mark.parametrize("plural", ["serviceaccounts", "roles", "rolebindings"])
async def test_a_missing_permission_of_the_controller_blocks_the_job(plural: str) -> None:
    """The job reports it, no launcher is created, and retries become less frequent."""
    words = f'User "x" cannot create resource "{plural}"'
    async with playing(Rule(Refuse(403, "Forbidden", words), verb="create", plural=plural)) as it:
        await it.submit()
        await it.harness.settle(600)

        kind = {"serviceaccounts": "ServiceAccount", "roles": "Role", "rolebindings": "RoleBinding"}[plural]
        assert {f"FailedCreate{kind}", "MissingPermissions"} <= await it.reasons()
        assert await it.conditions() == "Running F, Created T"
        assert "hvd-launcher" not in await it.harness.names(PODS)
        assert it.harness.faults.count("create", plural) < 30

        it.harness.faults.rules.clear()
        await it.harness.settle(300)
        assert "hvd-launcher" in await it.harness.names(PODS)


@pytest.mark.parametrize("plural", ["roles", "rolebindings", "configmaps", "pods"])
async def test_a_lost_response_is_repaired(plural: str) -> None:
    async with playing(Rule(Reset(committed=True), verb="create", plural=plural, times=1)) as it:
        await it.submit()
        await it.harness.settle(60)
        await it.set_phase("Running")

        assert await it.conditions() == "Created T, Running T"
        assert await it.named() == ["hvd-worker-0", "hvd-worker-1"]
        assert await it.harness.names(PODS) == ["hvd-launcher", "hvd-worker-0", "hvd-worker-1"]


async def test_a_restarted_controller_leaves_existing_children_alone() -> None:
    resources = ((ROLES, "hvd-launcher"), (ROLE_BINDINGS, "hvd-launcher"), (CONFIG_MAPS, "hvd-config"))
    async with start_harness(crds=(RESOURCE,)) as harness:
        async with running_controller(harness, SETTINGS):
            it = Play(harness)
            await it.submit()
            await it.set_phase("Running")
        before = [await harness.get(*resource) for resource in resources]
        harness.faults.calls.clear()
        async with running_controller(harness, SETTINGS):
            await harness.settle(10)

            assert [await harness.get(*resource) for resource in resources] == before
            assert [call.verb for call in harness.calls if call.verb not in {"watch", "get", "list"}] == []


async def test_the_permission_of_a_job_that_finished_unobserved_is_revoked() -> None:
    """Such a job may remain from training-operator."""
    async with start_harness(crds=(RESOURCE,)) as harness:
        it = Play(harness)
        async with running_controller(harness, SETTINGS):
            await it.submit()
            await it.set_phase("Running")
        assert await it.named() != []
        condition = {"type": "Succeeded", "status": "True", "reason": "MPIJobSucceeded", "message": "done"}
        await harness.change(RESOURCE, "hvd", {"status": {"conditions": [condition]}}, "status")
        async with running_controller(harness, SETTINGS):
            await harness.settle(10)

            assert await it.named() == []


@pytest.mark.parametrize("finished", [False, True], ids=["a job that runs", "one that has finished"])
async def test_permissions_that_training_operator_granted_are_narrowed(finished: bool) -> None:
    async with start_harness(crds=(RESOURCE,)) as harness:
        it = Play(harness)
        async with running_controller(harness, SETTINGS):
            await it.submit()
            await it.set_phase("Running")
            if finished:
                await it.set_phase("Succeeded", "hvd-launcher")
        every_pod = {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}
        await harness.change(ROLES, "hvd-launcher", {"rules": [every_pod]})
        before = sorted(await harness.names(PODS))
        async with running_controller(harness, SETTINGS):
            await harness.settle(10)

            rules = (await harness.get(ROLES, "hvd-launcher"))["rules"] or []
            assert all(rule["resourceNames"] == ["hvd-worker-0", "hvd-worker-1"] for rule in rules)
            assert (rules == []) is finished
            assert sorted(await harness.names(PODS)) == before
        harness.faults.calls.clear()
        async with running_controller(harness, SETTINGS):
            await harness.settle(10)

            assert harness.faults.count("patch", "roles") == 0


ORPHAN = pytest.mark.parametrize("version", ["v1", "v1alpha2"])


@ORPHAN
async def test_no_permission_outlives_a_job_that_is_deleted_without_its_children(version: str) -> None:
    """Somebody else's pods may get the names that it is on. All children stay, as the user wants."""
    async with playing() as it:
        await it.submit(version=version)
        await it.set_phase("Running")
        assert await it.named() == ["hvd-worker-0", "hvd-worker-1"]

        await it.harness.delete(RESOURCE, "hvd", propagation="Orphan")
        await it.harness.settle(5)

        assert await it.named() == []
        assert await it.harness.names(ROLES) == ["hvd-launcher"]
        assert {"hvd-worker-0", "hvd-worker-1"} <= set(await it.harness.names(PODS))


@ORPHAN
async def test_no_permission_outlives_a_job_whose_deletion_was_not_observed(version: str) -> None:
    """The job is gone when its watch is complete again; meanwhile no pod is known to be its own."""
    async with playing() as it:
        await it.submit(version=version)
        await it.set_phase("Running")
        it.harness.faults.rules.append(Rule(Cut(), verb="watch", plural="mpijobs", times=1))
        it.harness.faults.rules.append(Rule(Refuse(410, "Expired"), verb="watch", plural="mpijobs", times=1))
        await it.harness.delete(RESOURCE, "hvd", propagation="Orphan")
        await it.harness.settle(60)

        assert await it.named() == []


async def test_a_permission_that_cannot_be_revoked_at_once_is_revoked_later() -> None:
    rule = Rule(Refuse(500, "InternalError"), verb="patch", plural="roles", times=2)
    async with playing() as it:
        await it.submit()
        await it.set_phase("Running")
        it.harness.faults.rules.append(rule)
        await it.harness.delete(RESOURCE, "hvd", propagation="Orphan")
        await it.harness.settle(30)

        assert rule.met == 2
        assert await it.named() == []


async def test_a_foreign_role_of_that_name_keeps_its_rules() -> None:
    async with playing() as it:
        await it.submit()
        await it.set_phase("Running")
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
        await it.harness.delete(ROLES, "hvd-launcher")
        await it.harness.create(ROLES, {**foreign(ROLES, "hvd-launcher"), "rules": [rule]})
        await it.harness.delete(RESOURCE, "hvd", propagation="Orphan")
        await it.harness.settle(5)

        assert (await it.harness.get(ROLES, "hvd-launcher"))["rules"] == [rule]


async def test_deleting_a_finished_job_causes_no_writes() -> None:
    """Its right was taken away when it ended."""
    async with playing() as it:
        await it.submit()
        await it.set_phase("Running")
        await it.set_phase("Succeeded", "hvd-launcher")
        it.harness.faults.calls.clear()
        await it.harness.delete(RESOURCE, "hvd")
        await it.harness.settle(5)

        assert [call.verb for call in it.harness.calls if call.verb not in {"watch", "get", "list"}] == []


async def test_a_controller_that_starts_while_the_job_is_orphaned_empties_its_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Role must still name its owner, which is unknown later. Another finalizer stands in for the short-lived one."""
    monkeypatch.setattr(jobs, "ORPHAN", "example.com/slow")
    async with start_harness(crds=(RESOURCE,)) as harness:
        it = Play(harness)
        async with running_controller(harness, SETTINGS):
            await it.submit()
            await it.set_phase("Running")
        await harness.change(RESOURCE, "hvd", {"metadata": {"finalizers": ["example.com/slow"]}})
        await harness.delete(RESOURCE, "hvd")
        async with running_controller(harness, SETTINGS):
            await harness.settle(10)

            assert await it.named() == []
