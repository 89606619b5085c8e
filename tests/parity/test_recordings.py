"""The controller against recordings of the Go operators: same jobs, same steps, same API server, same outcome.

All cases run concurrently before the first test; each test then checks one of them.
"""

import asyncio
from pathlib import Path

import pytest

from controller.kinds import ALL
from rallypoint.testing.service import service
from tests.support.parity.case import Case, load
from tests.support.parity.compare import Outcome, evaluate, load_declared, unused
from tests.support.parity.environment import OPERATOR, start_control_plane
from tests.support.parity.run import run_cases

FOLDER = Path(__file__).parent
GOLDEN = FOLDER / "golden"
PROFILES: dict[str, list[str]] = {
    "default": [],
    "volcano": ["--gang-scheduler-name=volcano"],
    "scheduler-plugins": ["--gang-scheduler-name=scheduler-plugins"],
}
"""How the controller is started for the cases of a profile."""

EVERY_KIND = [f"--enable-scheme={kind.resource.kind}" for kind in ALL]
KINDS = {variant.resource for kind in ALL for variant in kind.variants}
CASES = {case.id: case for case in load(GOLDEN) if case.resource in KINDS and case.profile in PROFILES}
DECLARED = load_declared(FOLDER / "differs")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """Return the outcomes of the selected cases, or of all cases."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    chosen = [CASES[item.callspec.id] for item in items if item.originalname == test_recording.__name__]
    outcomes: dict[str, Outcome] = {}
    with start_control_plane([GOLDEN / "crds" / "podgroups.yaml"]) as plane:
        for profile, flags in PROFILES.items():
            cases = [case for case in chosen or CASES.values() if case.profile == profile]
            with service(plane, plane.kubeconfig(OPERATOR), [*EVERY_KIND, *flags]) as running:
                outcomes |= asyncio.run(run_cases(plane, cases))
                running.process.check()
    return outcomes


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES.values()])
def test_recording(case: Case, outcomes: dict[str, Outcome]) -> None:
    complaints = evaluate(case, outcomes[case.id], DECLARED).complaints

    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def test_every_declared_difference_exists(outcomes: dict[str, Outcome]) -> None:
    """An entry is outdated if all its cases ran and none differs."""
    verdicts = [evaluate(CASES[name], outcome, DECLARED) for name, outcome in outcomes.items()]
    used = {entry for verdict in verdicts for entry in verdict.used}

    assert unused(DECLARED, used, outcomes, CASES) == []
