"""Namespaces that are being deleted, known from the API server's answers to creates. The controller neither lists nor watches namespaces."""

import asyncio

import structlog

from controller.kube.bounded_dict import BoundedDict
from controller.kube.errors import NamespaceTerminating

RETRY_SECONDS = 300.0
"""How often a create is sent anyway, to notice that a namespace of this name accepts objects again."""

REMEMBERED = 1024
"""Maximum number of known namespaces. After an eviction the next create asks the server again."""

log = structlog.get_logger()


class TerminatingNamespaces:
    """Refuses creates on behalf of the API server after its first answer that a namespace is terminating.

    Such a namespace never accepts objects again, but a new one of the same name may: a new job in it shows that, and so does a successful
    create.
    """

    def __init__(self) -> None:
        self._refused: BoundedDict[str, tuple[NamespaceTerminating, float]] = BoundedDict(REMEMBERED)
        """By name: the server's answer, and the loop time until which it applies to other creates."""

    def __contains__(self, namespace: object) -> bool:
        return namespace in self._refused

    def add(self, namespace: str, error: NamespaceTerminating) -> None:
        """Record the server's answer to a create."""
        if namespace not in self._refused:
            log.info("namespace is terminating, creates are skipped", namespace=namespace)
        self._refused[namespace] = error, asyncio.get_running_loop().time() + RETRY_SECONDS

    def discard(self, namespace: str) -> None:
        """Record that a namespace of this name accepts objects."""
        self._refused.pop(namespace, None)

    def check(self, namespace: str) -> None:
        """Raise unless a create may be sent. After each ``RETRY_SECONDS`` one create may be sent.

        Raises:
            NamespaceTerminating: the namespace accepts no objects, as far as is known.
        """
        if namespace not in self._refused:
            return
        error, until = self._refused[namespace]
        now = asyncio.get_running_loop().time()
        if now < until:
            raise NamespaceTerminating(error.code, error.reason, error.message)
        self._refused[namespace] = error, now + RETRY_SECONDS
