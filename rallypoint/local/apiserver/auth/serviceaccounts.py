"""Who makes a request: the person who runs the server, or a pod by the token of its ServiceAccount.

A pod's token is a signed JWT, as in a cluster, and bound to the pod: it is good while the pod's object exists. Nothing
is remembered for it; the signing key lasts as long as the server.

Source: Kubernetes, pkg/serviceaccount/claims.go. Differs: there is no ``exp``, as nobody renews the tokens of programs
that read them once; the end of the pod is the end of its token.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from rallypoint.local.apiserver.storage.store import Store

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Also the audience of tokens for this server."""
PREFIX = "system:serviceaccount:"
AUTHENTICATED = "system:authenticated"
HEADER = {"alg": "HS256", "typ": "JWT"}


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...]


ADMINISTRATOR = User("rallypoint", ("system:masters", AUTHENTICATED))
"""Whoever holds the server's own token: the person, and the parts of this process."""


def service_account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{PREFIX}{namespace}:{name}", groups)


class PodTokens:
    """Issues the tokens of pods, and knows them again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = secrets.token_bytes(32)

    def issue(self, pod: Mapping[str, Any], audience: str = "") -> str:
        """The token of a pod; the same each time. One for another ``audience`` is of no use here."""
        meta = pod["metadata"]
        account = str(pod["spec"].get("serviceAccountName") or "default")
        private = {
            "namespace": meta["namespace"],
            "pod": {"name": meta["name"], "uid": meta["uid"]},
            "serviceaccount": {"name": account},
        }
        claims = {
            "aud": [audience or ISSUER],
            "iss": ISSUER,
            "sub": service_account(meta["namespace"], account).name,
            "kubernetes.io": private,
        }
        signed = b".".join(_encoded(orjson.dumps(part)) for part in (HEADER, claims))
        return b".".join([signed, self._signature(signed)]).decode()

    def authenticate(self, token: str) -> User | None:
        """Whose token it is; None when it is not of this server, not for it, or its pod is gone."""
        signed, _, signature = token.encode(errors="surrogateescape").rpartition(b".")
        if not hmac.compare_digest(signature, self._signature(signed)):
            return None
        claims: dict[str, Any] = orjson.loads(_decoded(signed.partition(b".")[2]))
        bound = claims["kubernetes.io"]
        pod = self._store.collection("/pods").entries.get((bound["namespace"], bound["pod"]["name"]))
        if ISSUER not in claims["aud"] or pod is None or pod.metadata["uid"] != bound["pod"]["uid"]:
            return None
        return service_account(bound["namespace"], bound["serviceaccount"]["name"])

    def _signature(self, signed: bytes) -> bytes:
        return _encoded(hmac.digest(self._key, signed, hashlib.sha256))


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
