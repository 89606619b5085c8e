"""The job that owns children and events."""

from dataclasses import dataclass
from enum import Enum

from controller.domain import DEFAULT_MESSAGES, EventMessages
from controller.reconcile.memory import JobMemory
from controller.runtime.recorder import Subject


class Pods(Enum):
    """The state of a job's pods: there are none, some have not started, or all have started."""

    NONE = "none"
    WAITING = "waiting"
    STARTED = "started"


@dataclass(frozen=True, slots=True)
class Parent:
    """A job: its identity, memory and generation, the event texts of its kind, and the state of its pods."""

    subject: Subject
    memory: JobMemory
    generation: int
    event_messages: EventMessages = DEFAULT_MESSAGES
    pods: Pods = Pods.NONE
