"""Plays cases side by side in one namespace of one API server."""

import asyncio
from collections.abc import Collection

from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.parity.audit import AuditLog
from rallypoint.testing.parity.case import Case, slowest_first
from rallypoint.testing.parity.case_run import NotPlayed, Play
from rallypoint.testing.parity.observer import observing
from rallypoint.testing.parity.owners import Owners
from rallypoint.testing.parity.verdict import Outcome

CASES_AT_ONCE = 20
"""Most of a case is waiting; more at once and two cores no longer answer well within the time a case is quiet for."""
REQUESTS_AT_ONCE = 32
GOODBYE_SECONDS = 0.1
"""A closed TLS connection is gone some turns of the loop later; a loop that ends at once would leave it open."""


async def play_all(plane: ControlPlane, cases: Collection[Case]) -> dict[str, Outcome]:
    """The outcome of each case, by its id. The operator runs, and its requests are in the control plane's audit log."""
    assert plane.audit_log is not None
    owners = Owners(case.name for case in cases)
    audit = AuditLog(plane.audit_log, owners)
    connection = await from_kubeconfig(str(plane.kubeconfig()))
    resources = {case.resource for case in cases}
    async with (
        Client(connection, in_flight=REQUESTS_AT_ONCE, user_agent="rallypoint-parity") as client,
        observing(client, owners, resources) as observer,
    ):
        slots = asyncio.Semaphore(CASES_AT_ONCE)
        plays = [Play(case, client, observer.scenes[case.name], audit) for case in slowest_first(cases)]
        outcomes = await asyncio.gather(*(_outcome(play, slots) for play in plays))
    await asyncio.sleep(GOODBYE_SECONDS)
    return {play.case.id: outcome for play, outcome in zip(plays, outcomes, strict=True)}


async def _outcome(play: Play, slots: asyncio.Semaphore) -> Outcome:
    async with slots:
        try:
            await play.run()
        except NotPlayed as error:
            return Outcome(play.records, str(error))
    return Outcome(play.records)
