"""The job that children and events are written for."""

from dataclasses import dataclass
from enum import Enum

from controller.domain import DEFAULT_MESSAGES, EventMessages
from controller.reconcile.memory import JobMemory
from controller.runtime.recorder import Subject


class Pods(Enum):
    """How the pods of a job are: there are none, some have not started, or all have."""

    NONE = "none"
    WAITING = "waiting"
    STARTED = "started"


@dataclass(frozen=True, slots=True)
class Parent:
    """A job: which one, what is remembered of it, its generation, how its kind words events, and how its pods are."""

    subject: Subject
    memory: JobMemory
    generation: int
    event_messages: EventMessages = DEFAULT_MESSAGES
    pods: Pods = Pods.NONE
