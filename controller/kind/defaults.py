"""The defaults of the optional members of a kind, and types that all kinds share."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from api.children import Owned
from api.job import Job
from api.labels import MANAGED_BY_US
from controller.domain import DEFAULT_MESSAGES, Child, Counts, Event, EventMessages, Role, Snapshot
from controller.kind.options import KindOptions, Options
from controller.kind.validation_rules import ValidationRule

J = TypeVar("J", bound=Job)

Roles = Mapping[str, Role]
"""The roles of one job by name, in the kind's order."""

PodSlot = tuple[str, int]
"""The label of a role, and an index."""

EnvVar = tuple[str, str | Mapping[str, Any]]
"""A name and a value, or the source of the value (``valueFrom`` in Kubernetes)."""

DEFAULT_TTL_EVENT_REASONS: Final = ("SuccessfulDeleteJob", "FailedDeleteJob")


class KindDefaults:
    """Defaults of the optional members of ``JobKind`` and ``Replicas``, which document them."""

    managed_by: str = MANAGED_BY_US
    lease: str = ""
    scalable: bool = False
    is_opt_in: bool = False
    options: type[KindOptions] | None = None
    ttl_event_reasons: tuple[str, str] = DEFAULT_TTL_EVENT_REASONS
    event_messages: EventMessages = DEFAULT_MESSAGES
    flow: Any = None
    settings_word: str = "Set"
    warns_of_unnamed_scheduler: bool = False

    @property
    def variants(self) -> tuple[Any, ...]:
        return (self,)

    @property
    def validation_rules(self) -> tuple[ValidationRule, ...]:
        return ()

    def variant(self, job: Any, children: Iterable[Owned] = ()) -> Any:
        return self

    def node_label(self, options: Options) -> str:
        return ""

    def normal(self, job: Any, /) -> Any:
        return job

    def warnings(self, job: Any, children: Iterable[Owned] = ()) -> Iterable[Event]:
        return ()

    def required_annotations(self, job: Any) -> Mapping[str, str]:
        return {}

    def while_idle(self, job: Any, /) -> Iterable[Child]:
        return ()

    def can_create(self, job: Any, role: Role, snapshot: Snapshot, options: Options, /) -> bool:
        return True

    def later(self, job: Any, snapshot: Snapshot, options: Options, /) -> Collection[str]:
        return ()

    def extras(self, job: Any, snapshot: Snapshot, now: datetime, options: Options, /) -> Iterable[Child]:
        return ()

    def due_in(self, job: Any, snapshot: Snapshot, now: datetime, options: Options, /) -> float | None:
        return None

    def waits_for(self, job: Any, snapshot: Snapshot, now: datetime, options: Options, /) -> str:
        return ""

    def counted(self, counts: Mapping[str, Counts], /) -> Mapping[str, Counts]:
        return counts
