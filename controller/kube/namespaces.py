"""Namespaces that are being deleted, as the API server's answers to creates tell. Nothing is listed or watched for it."""

import asyncio
from collections import OrderedDict

import structlog

from controller.kube.errors import NamespaceTerminating

RETRY_SECONDS = 300.0
"""How often a create is sent all the same, in case nothing else shows that the namespace, or one of its name, takes objects again."""

REMEMBERED = 1024
"""Namespaces that are known; of one that is forgotten, the server is asked once more."""

log = structlog.get_logger()


class TerminatingNamespaces:
    """Refuses creates in place of the API server, from its first answer that a namespace is being terminated.

    Such a namespace never takes objects again, but one of the same name may: a job that is created in it shows that, and so does a create
    that succeeds.
    """

    def __init__(self) -> None:
        self._refused: OrderedDict[str, tuple[NamespaceTerminating, float]] = OrderedDict()
        """By name: the server's answer, and the loop time until which it stands for the others."""

    def __contains__(self, namespace: object) -> bool:
        return namespace in self._refused

    def add(self, namespace: str, error: NamespaceTerminating) -> None:
        """Record the server's answer to a create."""
        if namespace not in self._refused:
            log.info("namespace is being terminated: nothing is created in it", namespace=namespace)
        self._refused[namespace] = error, asyncio.get_running_loop().time() + RETRY_SECONDS
        if len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)

    def discard(self, namespace: str) -> None:
        """The namespace, or another one of that name, takes objects."""
        self._refused.pop(namespace, None)

    def check(self, namespace: str) -> None:
        """Return if a create may be sent; one at a time after each ``RETRY_SECONDS``.

        Raises:
            NamespaceTerminating: the namespace takes no objects, as far as is known.
        """
        if namespace not in self._refused:
            return
        error, until = self._refused[namespace]
        now = asyncio.get_running_loop().time()
        if now < until:
            raise NamespaceTerminating(error.code, error.reason, error.message)
        self._refused[namespace] = error, now + RETRY_SECONDS
