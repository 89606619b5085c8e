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


async def restore(on: Harness, backup: Backup) -> None:
    """Restore the backup; other writes pass the old version before any watch resumes."""
    store = on.server.store
    reached = store.revision
    on.faults.rules.append(AWAY)
    store.close_watchers()
    await on.settle(30)
    backup.restore(on.server)
    store.revision = reached
    await on.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}})
    on.faults.rules.remove(AWAY)


def reads(calls: list[Call]) -> int:
    return sum((call.verb, call.plural) == ("get", RESOURCE.plural) for call in calls)


async def test_a_job_with_an_older_version_is_not_read_in_a_loop() -> None:
    async with start_harness() as on, running_controller(on):
        await on.submit()
        backup = Backup.of(on.server.store)
        await on.settle(10)
        await restore(on, backup)
        on.faults.rules += [*UNHEARD, Rule(Delay(0.1), verb="get", plural=RESOURCE.plural)]
        on.faults.calls.clear()
        await on.settle(60)

        assert 0 < reads(on.calls) < 30

        on.faults.rules.clear()
        await on.settle(RECONNECTED_SECONDS)
        assert await on.names(PODS) == PODS_OF_JOB


async def test_a_job_that_is_no_longer_finished_is_not_deleted_by_its_ttl() -> None:
    with fake_clock() as clock:
        async with start_harness(clock=clock) as on, running_controller(on):
            await lose_an_end(on)


async def lose_an_end(on: Harness) -> None:
    await on.submit(runPolicy={"ttlSecondsAfterFinished": 20})
    await on.settle(5)
    await on.set_phase("Running")
    await on.settle(5)
    backup = Backup.of(on.server.store)
    await on.set_phase("Succeeded", code=0)
    await on.settle(5)
    assert "Succeeded T" in await on.conditions()
    before = await on.job()

    on.faults.rules += UNHEARD
    await restore(on, backup)
    await on.settle(60)
    on.faults.rules.clear()
    await on.settle(RECONNECTED_SECONDS)

    assert (await on.job())["metadata"]["uid"] == before["metadata"]["uid"]
    assert "Succeeded F" not in await on.conditions()
    assert await on.names(PODS) == PODS_OF_JOB
    await on.set_phase("Succeeded", code=0)
    await on.settle(60)
    assert await on.names(RESOURCE) == []
