"""The settings that planning reads: the options that all kinds share, and those of single kinds.

The options of a kind are a frozen dataclass that derives from ``KindOptions``. Each field made by ``option`` is a flag of the
controller.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

from api.services import ServiceMode


class InvalidOption(Exception):
    """An option cannot be used, such as the name of a missing file; the message begins with the flag."""


class KindOptions:
    """The options of one kind, as the flags set them."""

    prefix: ClassVar[str]
    """Flags are named ``--PREFIX-FIELD``."""

    def load(self) -> Self:
        """Return the options with the contents of the files that they name. ``app`` calls this once.

        Raises:
            InvalidOption: a file cannot be used.
        """
        return self


K = TypeVar("K", bound=KindOptions)


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of one field. ``on_off`` flags take the values ``on`` and ``off``; other boolean flags are switches."""

    name: str
    attribute: str
    default: Any
    help: str
    metavar: str | None
    on_off: bool


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that planning reads."""

    gang_scheduler: str = ""
    """``volcano``, ``kubernetes``, ``yunikorn``, or the name of a scheduler with the coscheduling of scheduler-plugins; empty disables gang
    scheduling.
    """
    max_replicas: int = 10_000
    """The maximum number of pods of one job."""
    clean_finished_pods: bool = False
    """Whether the pods of a failed job that still run are deleted if the job has no cleanPodPolicy."""
    cluster_domain: str = ""
    """The domain after ``.svc`` in the addresses that programs get, such as ``cluster.local``; empty adds nothing."""
    services: ServiceMode = ServiceMode.PER_REPLICA
    """Which Services a job gets that does not say it. Once ``policy.services`` has decided: those of the job that is planned."""
    keeps_ledger: bool = True
    """Whether the installed CRD stores which restarts are counted. The CRD of another operator may not."""
    container_restart_rules: bool = False
    """Whether the API server stores restartPolicyRules of containers, which restarts in place need."""
    most_missing: int | None = None
    """How many missing children of replicas one plan contains at most; None for all of them."""
    of_kinds: tuple[KindOptions, ...] = ()
    """The options of single kinds; a missing kind has its defaults."""

    def of(self, type_: type[K]) -> K:
        """Return the options of one kind."""
        return find(type_, self.of_kinds)


def find(type_: type[K], options: Iterable[object]) -> K:
    """Return the options of that type, or its defaults if there are none."""
    return next((found for found in options if isinstance(found, type_)), None) or type_()


def option(default: Any, help_: str, *, metavar: str | None = None, on_off: bool = False) -> Any:
    """Declare a field of a kind's options that is a flag."""
    return field(default=default, metadata={"help": help_, "metavar": metavar, "on_off": on_off})


def flags(type_: type[KindOptions]) -> Iterator[Flag]:
    """Return the flags of a kind's options."""
    for option_field in fields(type_):  # type: ignore[arg-type]  # they are dataclasses
        if option_field.metadata:
            name = f"--{type_.prefix}-{option_field.name.replace('_', '-')}"
            given = option_field.metadata
            yield Flag(
                name,
                option_field.name,
                option_field.default,
                given["help"],
                given["metavar"],
                given["on_off"],
            )
