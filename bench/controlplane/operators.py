"""The operators of a comparison: the working tree, other commits, and the Go operators, each with its own definitions."""

import argparse
import subprocess
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from api.meta import Resource
from api.services import ServiceMode
from bench import record
from bench.controlplane.job_kinds import JOB_KINDS
from bench.controlplane.scenario import Jobs
from bench.controlplane.testbed import OPERATOR_USER
from rallypoint.testing import checkout, go_operators
from rallypoint.testing.controlplane import ControlPlane, Unavailable
from rallypoint.testing.controlplane.process import Process
from rallypoint.testing.controlplane.programs import MPI_OPERATOR, TRAINING_OPERATOR
from rallypoint.testing.service import (
    IN_CLUSTER,
    MANIFESTS,
    Service,
    in_cluster_service,
    install,
    service,
)

GO = "go"
"""The word for the Go operators in ``--compare``, and their name in tables and records."""
WORKING_TREE = "working tree"
GO_FLAGS = ("--kube-api-qps=1000", "--kube-api-burst=2000")
"""Flags of both Go operators. Their defaults are 20 and 30 (training-operator), 5 and 10 (mpi-operator)."""
TRAINING_OPERATOR_FLAGS = (*GO_FLAGS, "--controller-threads=16")
MPI_OPERATOR_FLAGS = (
    *GO_FLAGS,
    "--threadiness=16",
    "--controller-queue-rate-limit=1000",
    "--controller-queue-burst=2000",
)


class Operator(Protocol):
    """What a comparison needs of an operator."""

    @property
    def name(self) -> str: ...

    def facts(self) -> dict[str, Any]:
        """Return version and flags, for the record."""
        ...

    def install(self, plane: ControlPlane) -> None:
        """Apply the operator's definitions and manifests."""
        ...

    def scenario(self, scenario: Jobs) -> Jobs:
        """Return the scenario with the Services that this operator creates."""
        ...

    def running(self, plane: ControlPlane, *, mpi: bool) -> AbstractContextManager[Process]:
        """Run the operator as in a cluster, with MPIJobs or the other kinds in use."""
        ...

    def by_hand(self, plane: ControlPlane) -> AbstractContextManager[Process] | None:
        """Run the operator by a kubeconfig, as a person starts it; None if ``running`` does so already."""
        ...


@dataclass(frozen=True, slots=True)
class Rallypoint:
    """The operator of this repository, in the working tree or at a commit, with the packages of this environment."""

    name: str
    commit: dict[str, Any]
    code: Path | None = None
    """The folder of the commit; None is the working tree."""
    flags: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {"commit": self.commit, "flags": list(self.flags)}

    @property
    def _overlay(self) -> Path:
        manifests = MANIFESTS if self.code is None else self.code / "manifests"
        return manifests / "overlays" / "standalone"

    def install(self, plane: ControlPlane) -> None:
        install(plane, self._overlay)

    def scenario(self, scenario: Jobs) -> Jobs:
        modes = [flag.partition("=")[2] for flag in self.flags if flag.startswith("--services=")]
        return replace(scenario, service_mode=ServiceMode(modes[-1])) if modes else scenario

    @contextmanager
    def running(self, plane: ControlPlane, *, mpi: bool) -> Generator[Process]:
        del mpi
        started: AbstractContextManager[Service] = in_cluster_service(
            plane, self.flags, launcher=IN_CLUSTER, overlay=self._overlay, code=self.code
        )
        with started as running:
            yield running.process

    @contextmanager
    def by_hand(self, plane: ControlPlane) -> Generator[Process]:
        with service(plane, plane.kubeconfig(OPERATOR_USER), self.flags, code=self.code) as running:
            yield running.process


@dataclass(frozen=True, slots=True)
class GoOperators:
    """training-operator for all kinds but MPIJob, and mpi-operator for MPIJobs; one of them runs at a time."""

    name: str = GO

    def facts(self) -> dict[str, Any]:
        return {
            "training-operator": {"version": TRAINING_OPERATOR, "flags": list(TRAINING_OPERATOR_FLAGS)},
            "mpi-operator": {"version": MPI_OPERATOR, "flags": list(MPI_OPERATOR_FLAGS)},
        }

    def install(self, plane: ControlPlane) -> None:
        plane.apply(
            *(
                definition
                for definition in go_operators.definitions("training-operator")
                if definition["spec"]["names"]["kind"] != "MPIJob"
            ),
            *go_operators.definitions("mpi-operator"),
        )

    def scenario(self, scenario: Jobs) -> Jobs:
        return scenario

    def running(self, plane: ControlPlane, *, mpi: bool) -> AbstractContextManager[Process]:
        if mpi:
            return go_operators.mpi_operator(plane, user=OPERATOR_USER, flags=MPI_OPERATOR_FLAGS)
        kinds = [resource.kind for resource in _served()]
        return go_operators.training_operator(plane, kinds, user=OPERATOR_USER, flags=TRAINING_OPERATOR_FLAGS)

    def by_hand(self, plane: ControlPlane) -> None:
        del plane


def _served() -> list[Resource]:
    return [job_kind.resource for job_kind in JOB_KINDS]


@dataclass(frozen=True, slots=True)
class Opponent:
    """What ``--compare`` names: the Go operators, or a revision with flags of the controller."""

    revision: str
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.revision, *self.flags))


def opponent(text: str) -> Opponent:
    """Parse ``go``, ``REF`` or ``REF,--FLAG=VALUE,--FLAG=VALUE``.

    Raises:
        argparse.ArgumentTypeError: the revision is missing, the Go operators have flags, or a mode of Services is unknown.
    """
    revision, *flags = text.split(",--")
    if not revision or revision.startswith("-") or (revision == GO and flags):
        raise argparse.ArgumentTypeError(f"{text}: expected {GO}, or a commit with flags: REF,--FLAG=VALUE")
    modes = [flag.partition("=")[2] for flag in flags if flag.startswith("services=")]
    if unknown := set(modes) - set(ServiceMode):
        raise argparse.ArgumentTypeError(f"{text}: no mode of Services: {', '.join(sorted(unknown))}")
    return Opponent(revision, tuple(f"--{flag}" for flag in flags))


def operators(flags: Sequence[str], opponents: Sequence[Opponent]) -> list[Operator]:
    """Return the operator of the working tree with these flags, and the opponents.

    Raises:
        Unavailable: a revision does not exist.
    """
    found: list[Operator] = [Rallypoint(WORKING_TREE, record.commit(), flags=tuple(flags))]
    for named in dict.fromkeys(opponents):
        if named.revision == GO:
            found.append(GoOperators())
            continue
        try:
            code = checkout.extract(named.revision)
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{named.revision} is no commit of this repository") from error
        commit = {"id": code.commit, "changed": False}
        found.append(Rallypoint(named.name, commit, code.folder, named.flags))
    return found
