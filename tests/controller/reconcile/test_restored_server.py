"""Reconciles while the server is restored from a backup and the watches notice one after the other."""

from api.meta import CONFIG_MAPS, PODS
from api.v1.pytorchjob import RESOURCE
from controller.runtime.backoff import Reconnect
from rallypoint.local.apiserver.serving.interceptor import Call
from tests.support.backups import Backup
from tests.support.faults import Delay, Refuse, Rule
from tests.support.harness import Harness, fake_clock, running_controller, start_harness

PODS_OF_JOB = ["train-master-0", "train-worker-0"]


AWAY = Rule(Refuse(503))


RECONNECTED_SECONDS = 2 * Reconnect.LONGEST_SECONDS + 5
"""After which every watch has tried to reach the server once more, whatever the jitter of its back-off."""

UNHEARD = [Rule(Refuse(503), verb=verb, plural=RESOURCE.plural) for verb in ("list", "watch")]
"""The watch of the jobs comes back later than the others."""


async def restore(harness: Harness, backup: Backup) -> None:
    """Restore the backup; other writes pass the old version before any watch resumes."""
    store = harness.server.store
    reached = store.revision
    harness.faults.rules.append(AWAY)
    store.close_watchers()
    await harness.settle(30)
    backup.restore(harness.server)
    store.revision = reached
    await harness.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}}
    )
    harness.faults.rules.remove(AWAY)


def reads(calls: list[Call]) -> int:
    return sum((call.verb, call.plural) == ("get", RESOURCE.plural) for call in calls)


async def test_a_job_with_an_older_version_is_not_read_in_a_loop() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        backup = Backup.of(harness.server.store)
        await harness.settle(10)
        await restore(harness, backup)
        harness.faults.rules += [*UNHEARD, Rule(Delay(0.1), verb="get", plural=RESOURCE.plural)]
        harness.faults.calls.clear()
        await harness.settle(60)

        assert 0 < reads(harness.calls) < 30

        harness.faults.rules.clear()
        await harness.settle(RECONNECTED_SECONDS)
        assert await harness.names(PODS) == PODS_OF_JOB


async def test_a_job_that_is_no_longer_finished_is_not_deleted_by_its_ttl() -> None:
    with fake_clock() as clock:
        async with start_harness(clock=clock) as harness, running_controller(harness):
            await lose_an_end(harness)


async def lose_an_end(harness: Harness) -> None:
    await harness.submit(runPolicy={"ttlSecondsAfterFinished": 20})
    await harness.settle(5)
    await harness.set_phase("Running")
    await harness.settle(5)
    backup = Backup.of(harness.server.store)
    await harness.set_phase("Succeeded", code=0)
    await harness.settle(5)
    assert "Succeeded T" in await harness.conditions()
    before = await harness.job()

    harness.faults.rules += UNHEARD
    await restore(harness, backup)
    await harness.settle(60)
    harness.faults.rules.clear()
    await harness.settle(RECONNECTED_SECONDS)

    assert (await harness.job())["metadata"]["uid"] == before["metadata"]["uid"]
    assert "Succeeded F" not in await harness.conditions()
    assert await harness.names(PODS) == PODS_OF_JOB
    await harness.set_phase("Succeeded", code=0)
    await harness.settle(60)
    assert await harness.names(RESOURCE) == []
