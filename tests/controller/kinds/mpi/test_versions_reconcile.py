"""Jobs of every version with the whole controller: warnings, annotations and storage migration."""

import asyncio
import copy
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import yaml

from api.meta import EVENTS, PODS
from api.mpijob import FLAVOR, RESOURCE, Flavor
from controller.runtime.migration import DEFINITIONS, SETTLED_SECONDS
from tests.support.faults import Refuse, Rule
from tests.support.harness import CRDS, TEST_SETTINGS, Harness, running_controller, start_harness
from tests.support.mpi import container

SETTINGS = replace(TEST_SETTINGS, enable_scheme=(RESOURCE.kind,))
DEFINITION = "mpijobs.kubeflow.org"
MULTIKUEUE = {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}


async def submit(harness: Harness, version: Flavor, **spec: Any) -> None:
    template = {"spec": {"containers": [container()]}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 1, "template": template}}
    body = {"apiVersion": version.resource.api_version, "kind": RESOURCE.kind, "metadata": {"name": "pi"}}
    await harness.create(version.resource, {**body, "spec": {"mpiReplicaSpecs": roles, **spec}})
    await harness.settle(5)


async def warning_reasons(harness: Harness) -> list[str]:
    reasons = {"FlavorMismatch", "FlavorUnknown", "FlavorImmutable", "FieldsIgnored"}
    return [event["reason"] for event in await harness.items(EVENTS) if event["reason"] in reasons]


@pytest.mark.parametrize("version", Flavor)
async def test_a_job_that_is_copied_to_another_cluster_gets_its_annotation(version: Flavor) -> None:
    async with start_harness(crds=[RESOURCE]) as harness, running_controller(harness, SETTINGS):
        await submit(harness, version, **MULTIKUEUE)
        job = await harness.get(RESOURCE, "pi")

        required_annotations = {} if version is Flavor.V2BETA1 else {FLAVOR: version.value}
        assert job["metadata"].get("annotations", {}) == required_annotations
        assert await harness.names(PODS) == []


@pytest.mark.parametrize("version", Flavor)
async def test_a_job_of_an_unknown_manager_gets_a_single_event(version: Flavor) -> None:
    """The operator records an event, because the manager writes the status. MultiKueue is known and reports by itself."""
    async with start_harness(crds=[RESOURCE]) as harness, running_controller(harness, SETTINGS):
        await submit(harness, version, runPolicy={"managedBy": "example.com/typo"})
        await harness.change(RESOURCE, "pi", {"metadata": {"labels": {"a": "b"}}})
        await harness.settle(60)
        events = await harness.items(EVENTS)
        operator = "training-operator" if version is Flavor.V1 else "mpi-operator"
        text = (
            'spec.runPolicy.managedBy is "example.com/typo": the job is left to that controller; this one is '
        )

        assert [(event["type"], event["reason"], event["message"], event["count"]) for event in events] == [
            (
                "Normal",
                "MPIJobLeftToAnother",
                f'{text}"kubeflow.org/{operator}"',
                1,
            )
        ]
        assert "status" not in await harness.get(RESOURCE, "pi")


@pytest.mark.parametrize("version", Flavor)
async def test_a_job_of_multikueue_has_no_event(version: Flavor) -> None:
    async with start_harness(crds=[RESOURCE]) as harness, running_controller(harness, SETTINGS):
        await submit(harness, version, **MULTIKUEUE)

        assert await harness.items(EVENTS) == []


async def test_only_explicit_fields_of_v2beta1_cause_a_warning() -> None:
    async with start_harness(crds=[RESOURCE]) as harness, running_controller(harness, SETTINGS):
        await submit(harness, Flavor.V1)
        await harness.change(Flavor.V2BETA1.resource, "pi", {"spec": {"slotsPerWorker": 2}})
        await harness.settle(60)
        assert (await harness.get(RESOURCE, "pi"))["spec"]["mpiImplementation"] == "OpenMPI"
        assert await warning_reasons(harness) == []

        await harness.change(RESOURCE, "pi", {"spec": {"mpiImplementation": "Intel"}})
        await harness.change(RESOURCE, "pi", {"metadata": {"labels": {"a": "b"}}})
        await harness.settle(60)
        assert await warning_reasons(harness) == ["FieldsIgnored"]


US, MPI_OPERATOR = "kubeflow.org/training-operator", "kubeflow.org/mpi-operator"


@pytest.mark.parametrize(
    ("version", "spec", "manager"),
    [
        pytest.param(Flavor.V1, {}, US, id="v1 is training-operator's"),
        pytest.param(Flavor.V2BETA1, {}, MPI_OPERATOR, id="v2beta1 is mpi-operator's"),
        pytest.param(Flavor.V1ALPHA2, {}, MPI_OPERATOR, id="v1alpha2 is mpi-operator's"),
        pytest.param(Flavor.V1, {"flavor": "v2beta1"}, MPI_OPERATOR, id="a chosen flavor counts"),
        pytest.param(Flavor.V2BETA1, {"flavor": "v1"}, US, id="a chosen flavor counts for v1"),
    ],
)
async def test_a_job_names_the_go_operator_that_manages_it(
    version: Flavor, spec: dict[str, Any], manager: str
) -> None:
    async with start_harness(crds=[RESOURCE]) as harness, running_controller(harness, SETTINGS):
        await submit(harness, version, **spec)
        job = await harness.get(RESOURCE, "pi")

        assert job["spec"]["runPolicy"]["managedBy"] == manager
        assert "status" in job
        assert await harness.names(PODS)


@asynccontextmanager
async def with_an_older_job(*rules: Rule) -> AsyncGenerator[Harness]:
    """A job of v2beta1 that was created before its definition had a default for ``managedBy``."""
    ours = yaml.load((CRDS / "kubeflow.org_mpijobs.yaml").read_text(), Loader=yaml.CSafeLoader)
    older = copy.deepcopy(ours)
    for version in older["spec"]["versions"]:
        policy = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["runPolicy"]
        del policy["default"], policy["properties"]["managedBy"]["default"]
    async with start_harness(*rules, crds=[]) as harness:
        harness.server.define(older)
        await submit(harness, Flavor.V2BETA1)
        assert "runPolicy" not in (await harness.get(RESOURCE, "pi"))["spec"]
        harness.server.define(ours)
        yield harness


async def test_a_job_that_is_older_than_the_default_gets_the_right_manager() -> None:
    async with with_an_older_job() as harness, running_controller(harness, SETTINGS):
        await harness.settle(5)

        assert (await harness.get(RESOURCE, "pi"))["spec"]["runPolicy"]["managedBy"] == MPI_OPERATOR
        assert await harness.names(PODS)


QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}
WORKLOAD = {"kueue.x-k8s.io/prebuilt-workload-name": "pi"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"labels": QUEUE}}, id="with a queue"),
        pytest.param({"metadata": {"annotations": WORKLOAD}}, id="with a Workload"),
        pytest.param({"spec": {"runPolicy": {"suspend": True}}}, id="suspended, perhaps by Kueue"),
    ],
)
async def test_the_manager_of_a_job_that_kueue_possibly_manages_is_unchanged(change: dict[str, Any]) -> None:
    async with with_an_older_job() as harness:
        await harness.change(RESOURCE, "pi", change)
        async with running_controller(harness, SETTINGS):
            await harness.settle(60)
            job = await harness.get(RESOURCE, "pi")

            assert job["spec"]["runPolicy"]["managedBy"] == US
            assert "status" in job


async def test_the_manager_of_a_suspended_job_is_corrected_when_it_is_resumed() -> None:
    async with with_an_older_job() as harness:
        await harness.change(RESOURCE, "pi", {"spec": {"runPolicy": {"suspend": True}}})
        async with running_controller(harness, SETTINGS):
            await harness.settle(5)
            await harness.change(RESOURCE, "pi", {"spec": {"runPolicy": {"suspend": False}}})
            await harness.settle(5)

            assert (await harness.get(RESOURCE, "pi"))["spec"]["runPolicy"]["managedBy"] == MPI_OPERATOR
            assert await harness.names(PODS)


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Refuse(403, "Forbidden", "may not"), id="for lack of rights"),
        pytest.param(Refuse(422, "Invalid", "may not"), id="by a rule of the definition"),
    ],
)
async def test_a_failed_correction_of_the_manager_is_not_retried_and_delays_no_job(refusal: Refuse) -> None:
    refused = Rule(refusal, verb="patch", plural=RESOURCE.plural, subresource="")
    async with with_an_older_job(refused) as harness, running_controller(harness, SETTINGS):
        await harness.settle(60)
        await harness.change(RESOURCE, "pi", {"metadata": {"labels": {"a": "b"}}})
        await harness.settle(60)

        assert refused.met == 1
        assert await harness.names(PODS)


async def test_a_manager_that_a_user_sets_back_is_not_corrected_again() -> None:
    async with with_an_older_job() as harness, running_controller(harness, SETTINGS):
        await harness.settle(5)
        await harness.change(RESOURCE, "pi", {"spec": {"runPolicy": {"managedBy": US}}})
        await harness.settle(60)

        assert (await harness.get(RESOURCE, "pi"))["spec"]["runPolicy"]["managedBy"] == US


@pytest.mark.parametrize("version", Flavor)
async def test_writes_of_the_controller_do_not_change_the_flavor(version: Flavor) -> None:
    async with start_harness(crds=[RESOURCE]) as harness, running_controller(harness, SETTINGS):
        await submit(harness, version)
        job = await harness.get(RESOURCE, "pi")

        assert [condition["type"] for condition in job["status"]["conditions"]][:1] == ["Created"]
        assert (job["spec"]["flavor"], FLAVOR in job["metadata"].get("annotations", {})) == (version, False)


async def test_the_leader_rewrites_objects_of_an_older_storage_version() -> None:
    ours = yaml.load((CRDS / "kubeflow.org_mpijobs.yaml").read_text(), Loader=yaml.CSafeLoader)
    theirs = [
        {**version, "storage": True}
        for version in ours["spec"]["versions"]
        if version["name"] == Flavor.V2BETA1
    ]
    async with start_harness(crds=[]) as harness:
        harness.server.define({**ours, "spec": {**ours["spec"], "versions": theirs}})
        await submit(harness, Flavor.V2BETA1, runPolicy={"suspend": True})
        harness.server.define(ours)
        async with running_controller(harness, SETTINGS):
            await harness.settle(SETTLED_SECONDS / 2)
            assert (await harness.get(DEFINITIONS, DEFINITION))["status"]["storedVersions"] == [
                "v2beta1",
                "v1",
            ]
            await harness.settle(SETTLED_SECONDS)

        assert (await harness.get(DEFINITIONS, DEFINITION))["status"]["storedVersions"] == ["v1"]
        assert (await harness.get(RESOURCE, "pi"))["spec"]["flavor"] == "v2beta1"


async def test_an_unreadable_definition_delays_no_job() -> None:
    forbidden = Rule(Refuse(403, "Forbidden", "may not"), verb="get", plural=DEFINITIONS.plural)
    async with (
        start_harness(forbidden, crds=[RESOURCE]) as harness,
        running_controller(harness, SETTINGS) as task,
    ):
        await submit(harness, Flavor.V1)
        await asyncio.sleep(60)

        assert forbidden.met == 1
        assert not task.done()
        assert await harness.names(PODS)
