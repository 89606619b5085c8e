"""What decisions know of the settings: the options that all kinds share, and those that a kind brings.

A kind with options of its own has a frozen dataclass for them, derived from ``KindOptions``. Each field made by ``option`` is a flag of the
controller.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar


class InvalidOption(Exception):
    """An option names something that cannot be used, such as a missing file; the message begins with the flag."""


class KindOptions:
    """The options of one kind, as flags give them."""

    prefix: ClassVar[str]
    """Flags are named ``--PREFIX-FIELD``."""

    def load(self) -> Self:
        """Return the options with the contents of the files that they name. The composition root calls this once.

        Raises:
            InvalidOption: a file cannot be used.
        """
        return self


K = TypeVar("K", bound=KindOptions)


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of one field. ``on_off`` flags take these two words, other flags of a bool are switches."""

    name: str
    attribute: str
    default: Any
    help: str
    metavar: str | None
    on_off: bool


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say that decisions depend on."""

    gang_scheduler: str = ""
    """``volcano``, or the name of a scheduler with the coscheduling of scheduler-plugins; empty schedules no gangs."""
    max_replicas: int = 10_000
    """The most pods that one job may ask for."""
    cluster_domain: str = ""
    """What follows ``.svc`` in addresses that are told to programs, such as ``cluster.local``; empty is nothing."""
    keeps_ledger: bool = True
    """Whether the installed CRD stores which restarts are counted; another operator's may not."""
    of_kinds: tuple[KindOptions, ...] = ()
    """The options of single kinds; a kind that is missing has its defaults."""

    def of(self, type_: type[K]) -> K:
        """Return the options of one kind."""
        return find(type_, self.of_kinds)


def find(type_: type[K], options: Iterable[object]) -> K:
    """Return the options of that type, the defaults if there are none."""
    return next((each for each in options if isinstance(each, type_)), None) or type_()


def option(default: Any, help_: str, *, metavar: str | None = None, on_off: bool = False) -> Any:
    """A field of the options of a kind that is a flag."""
    return field(default=default, metadata={"help": help_, "metavar": metavar, "on_off": on_off})


def flags(type_: type[KindOptions]) -> Iterator[Flag]:
    """Return the flags of a kind's options."""
    for each in fields(type_):  # type: ignore[arg-type]  # they are dataclasses
        if each.metadata:
            name = f"--{type_.prefix}-{each.name.replace('_', '-')}"
            given = each.metadata
            yield Flag(name, each.name, each.default, given["help"], given["metavar"], given["on_off"])
