"""Runs cases side by side in one namespace of one API server."""

import asyncio
from collections.abc import Collection

from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.controlplane import ControlPlane
from tests.support.parity.audit import AuditLog
from tests.support.parity.case import Case, slowest_first
from tests.support.parity.case_run import CaseFailed, CaseRun
from tests.support.parity.compare import Outcome
from tests.support.parity.observer import observe
from tests.support.parity.resources import Owners

CASES_AT_ONCE = 8
"""A case mostly waits. With 20 at once, two slow cores with other work do not answer within the quiet time of a case."""
REQUESTS_AT_ONCE = 32
GOODBYE_SECONDS = 0.1
"""A TLS connection closes some turns of the loop later; a loop that ends at once would leave it open."""


async def run_cases(plane: ControlPlane, cases: Collection[Case]) -> dict[str, Outcome]:
    """Return the outcome of each case by its id. The operator runs, with its requests in the control plane's audit log."""
    assert plane.audit_log is not None
    owners = Owners(case.name for case in cases)
    audit = AuditLog(plane.audit_log, owners)
    connection = await from_kubeconfig(str(plane.kubeconfig()))
    resources = {case.resource for case in cases}
    async with (
        Client(connection, in_flight=REQUESTS_AT_ONCE, user_agent="rallypoint-parity") as client,
        observe(client, owners, resources) as observer,
    ):
        slots = asyncio.Semaphore(CASES_AT_ONCE)
        case_runs = [
            CaseRun(case, client, observer.observed_jobs[case.name], audit) for case in slowest_first(cases)
        ]
        outcomes = await asyncio.gather(*(_outcome(case_run, slots) for case_run in case_runs))
    await asyncio.sleep(GOODBYE_SECONDS)
    return {case_run.case.id: outcome for case_run, outcome in zip(case_runs, outcomes, strict=True)}


async def _outcome(case_run: CaseRun, slots: asyncio.Semaphore) -> Outcome:
    async with slots:
        try:
            await case_run.run()
        except CaseFailed as error:
            return Outcome(case_run.records, str(error))
    return Outcome(case_run.records)
