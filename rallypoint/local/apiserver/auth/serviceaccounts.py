"""Users, and the ServiceAccount tokens of pods.

The token of a pod is a signed JWT that is bound to the pod: it is valid while the pod object exists. The server stores
no tokens; its signing key lasts as long as the process.

Source: Kubernetes, pkg/serviceaccount/claims.go. Differs: there is no ``exp``, because programs read
their token once and nothing renews it; the token ends with the pod.
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
"""The issuer, and the audience of tokens for this server."""
PREFIX = "system:serviceaccount:"
AUTHENTICATED = "system:authenticated"
HEADER = {"alg": "HS256", "typ": "JWT"}


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...]


ADMINISTRATOR = User("rallypoint", ("system:masters", AUTHENTICATED))
"""The user of the server's own token: the person who runs it, and this process."""


def service_account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{PREFIX}{namespace}:{name}", groups)


class PodTokens:
    """Issues and authenticates the tokens of pods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = secrets.token_bytes(32)

    def issue(self, pod: Mapping[str, Any], audience: str = "") -> str:
        """Return the token of a pod, the same on every call. This server rejects tokens for another ``audience``."""
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
        """Return the user of a token; None if its signature, audience or pod is not valid."""
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
