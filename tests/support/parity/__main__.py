"""``python -m tests.support.parity CASE...``: records what the Go operators do with MPIJobs in those cases.

    python -m tests.support.parity tests/parity/golden/mpijob-v2beta1/minimal

A case is a folder with a ``case.yaml``; its ``expect`` is written anew. Cases of v2beta1 are played with mpi-operator, those of v1 with
training-operator, each compiled from its module, with its own definitions; for MPIJobs neither has a webhook.
"""

import asyncio
import json
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from rallypoint.testing import go_operators
from rallypoint.testing.controlplane import ControlPlane
from tests.support.parity.case import Case, load
from tests.support.parity.compare import Outcome
from tests.support.parity.environment import OPERATOR, start_control_plane
from tests.support.parity.run import run_cases

_FAST = ("--kube-api-qps=500", "--kube-api-burst=1000")
_DELIVERY = "--mpi-kubectl-delivery-image=kubeflow/kubectl-delivery:latest"
"""The default of the release that the other cases were recorded with."""
_FAST_MPI = (*_FAST, "--controller-queue-rate-limit=1000", "--controller-queue-burst=10000")


def main(folders: Sequence[str]) -> int:
    """Return the exit status: 1 if a case could not run to its end."""
    chosen = [Path(folder).resolve() for folder in folders]
    (golden,) = {folder.parents[1] for folder in chosen}
    names = {folder.relative_to(golden).as_posix() for folder in chosen}
    cases = [case for case in load(golden) if case.id in names]
    failed = False
    for (operator, profile), group in groupby(sorted(cases, key=_setting), key=_setting):
        for case_id, outcome in _run_cases(golden, operator, profile, list(group)).items():
            failed |= outcome.failure != ""
            sys.stderr.write(f"{case_id}: {outcome.failure or 'recorded'}\n")
            for name, record in outcome.records.items():
                path = golden / case_id / "expect" / f"{name}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(record, indent=1) + "\n")
    return int(failed)


def _setting(case: Case) -> tuple[str, str]:
    is_of_mpi_operator = (case.resource.kind, case.resource.version) == ("MPIJob", "v2beta1")
    return "mpi-operator" if is_of_mpi_operator else "training-operator", case.profile


def _run_cases(golden: Path, operator: str, profile: str, cases: Sequence[Case]) -> dict[str, Outcome]:
    definitions = go_operators.definitions(operator)
    with (
        start_control_plane([golden / "crds" / "podgroups.yaml"], definitions) as plane,
        _running(plane, operator, profile, {case.resource.kind for case in cases}),
    ):
        return asyncio.run(run_cases(plane, cases))


@contextmanager
def _running(plane: ControlPlane, operator: str, profile: str, kinds: Iterable[str]) -> Generator[None]:
    gang = [] if profile == "default" else [profile]
    if operator == "mpi-operator":
        flags = [*_FAST_MPI, *(f"--gang-scheduling={name}" for name in gang)]
        with go_operators.mpi_operator(plane, user=OPERATOR, flags=flags):
            yield
    else:
        flags = [*_FAST, _DELIVERY, *(f"--gang-scheduler-name={name}" for name in gang)]
        with go_operators.training_operator(plane, sorted(kinds), user=OPERATOR, flags=flags):
            yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
