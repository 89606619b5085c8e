"""Authenticates and authorizes requests to the metrics endpoint: the API server reviews the token, and then the access of its user.

Nothing is served when a review fails. Source: controller-runtime 0.22, pkg/metrics/filters/filters.go, WithAuthenticationAndAuthorization;
Kubernetes 1.34, apiserver/pkg/authentication/request/bearertoken and apiserver/plugin/pkg/authorizer/webhook. Differs: a token that is not
valid gets 401 as no token does, and not 500; reviews that fail get 503; the number of reviews is limited.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from math import ceil
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import aiohttp
import orjson
import structlog

from controller.kube.bounded_dict import BoundedDict
from controller.kube.client import Client
from controller.kube.errors import ApiError, describe
from controller.kube.failure_log import FailureLog
from controller.kube.token_bucket import TokenBucket

log = structlog.get_logger()

V = TypeVar("V")

TOKEN_ACCEPTED_SECONDS = 60.0
"""How long a valid token counts without another review. Source: controller-runtime, CacheTTL."""
TOKEN_REFUSED_SECONDS = 10.0
"""The same for a token that is not valid. Source: Kubernetes, apiserver/pkg/server/options/authentication.go, CacheTTL."""
ACCESS_ALLOWED_SECONDS = 300.0
"""How long an access that is allowed counts without another review. Source: controller-runtime, AllowCacheTTL."""
ACCESS_DENIED_SECONDS = 30.0
"""The same for an access that is denied. Source: controller-runtime, DenyCacheTTL."""
REVIEW_SECONDS = 10.0
"""How long a request waits for its reviews. Source: controller-runtime, TokenAccessReviewTimeout."""
FAILURE_PAUSE_SECONDS = 1.0
"""After a review that failed, requests that need one are refused for this long."""
LOG_SECONDS = 60.0
"""How often the same failure of a review is logged."""
REMEMBERED = 1024
"""Tokens, users and addresses that are remembered, each. Those that are valid are not replaced by others."""
ADDRESS_TOKENS_PER_SECOND, ADDRESS_TOKENS_BURST = 1.0, 10
"""Reviews of tokens for one client address. A scraper needs one a minute."""
REVIEWS_PER_SECOND, REVIEWS_BURST = 20.0, 40
"""Reviews for all client addresses, which take turns."""
REVIEWS_AT_ONCE = 4

_TOKEN = re.compile(r"[\x21-\x7e]+")
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

UserInfo = Mapping[str, Any]
"""``status.user`` of a TokenReview: username, uid, groups, extra."""


class Refusal(Exception):
    """The answer to a request that gets no metrics."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}


class ReviewObserver(Protocol):
    """Receives the result of each review: ``token`` or ``access``; ``allowed``, ``denied``, ``error`` or ``limited``."""

    def reviewed(self, review: str, result: str) -> None: ...


class Reviewer:
    """Asks the API server who sends a request and whether they may read the metrics."""

    def __init__(self, client: Client, observer: ReviewObserver, audiences: Sequence[str] = ()) -> None:
        """``audiences``: a token must be meant for one of them; without any, for the API server."""
        self._client = client
        self._observer = observer
        self._audiences = list(audiences)
        self._salt = secrets.token_bytes(32)
        self._users: _Reviews[UserInfo] = _Reviews(TOKEN_ACCEPTED_SECONDS, TOKEN_REFUSED_SECONDS)
        self._access: _Reviews[bool] = _Reviews(ACCESS_ALLOWED_SECONDS, ACCESS_DENIED_SECONDS)
        self._buckets: BoundedDict[str, TokenBucket] = BoundedDict(REMEMBERED)
        self._failures = FailureLog[str]()
        self._paused_until = float("-inf")

    async def check(self, authorization: str, address: str, verb: str, path: str) -> None:
        """Return if the request is authorized.

        Args:
            authorization: the header of the request; empty if there is none.
            address: the client's, which limits the number of its reviews.
            verb: the method, in lower case.

        Raises:
            Refusal: it is not, or the API server does not say.
        """
        if not (token := bearer_token(authorization)):
            raise _unauthorized()
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                user = await self._user(token, address)
                allowed = user and await self._is_allowed(user, address, verb, path)
        except TimeoutError:
            raise _unavailable() from None
        if not user:
            raise _unauthorized()
        if not allowed:
            raise Refusal(403, f"Forbidden: {user.get('username')} cannot {verb} {path}")

    async def _user(self, token: str, address: str) -> UserInfo | None:
        """Return the token's user, None if it is not valid."""

        async def review() -> UserInfo | None:
            self._limit(address)
            spec = {"token": token, **({"audiences": self._audiences} if self._audiences else {})}
            status = await self._review("token", "TokenReview", _TOKEN_REVIEWS, spec, address)
            user: UserInfo | None = status.get("user")
            is_valid = bool(status.get("authenticated") and user and self._is_meant(status))
            self._observer.reviewed("token", "allowed" if is_valid else "denied")
            if not is_valid:
                log.debug(
                    "token refused", address=address, reason=str(status.get("error", "")).replace(token, "…")
                )
            return user if is_valid else None

        key = blake2b(token.encode(), key=self._salt).digest()
        return await self._users.get(key, review)

    def _limit(self, address: str) -> None:
        """Check the rate limit of a client address.

        Raises:
            Refusal: the client has requested the review of too many tokens, or the API server answers none.
        """
        now = asyncio.get_running_loop().time()
        self._require_answers(now)
        bucket = self._buckets.get(address) or TokenBucket(ADDRESS_TOKENS_PER_SECOND, ADDRESS_TOKENS_BURST)
        self._buckets[address] = bucket
        if wait := bucket.take(now):
            self._observer.reviewed("token", "limited")
            raise Refusal(429, "Too many requests", {"Retry-After": str(ceil(wait))})

    def _require_answers(self, now: float) -> None:
        if now < self._paused_until:
            raise _unavailable()

    def _is_meant(self, status: Mapping[str, Any]) -> bool:
        """Return whether the token has a requested audience. A server that returns none has not checked it."""
        return not self._audiences or bool({*self._audiences} & {*(status.get("audiences") or ())})

    async def _is_allowed(self, user: UserInfo, address: str, verb: str, path: str) -> bool:
        spec: dict[str, Any] = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"verb": verb, "path": path},
        }

        async def review() -> bool | None:
            status = await self._review("access", "SubjectAccessReview", _ACCESS_REVIEWS, spec, address)
            is_allowed = status.get("allowed") is True and not status.get("denied")
            self._observer.reviewed("access", "allowed" if is_allowed else "denied")
            if not is_allowed:
                log.debug("access refused", address=address, user=spec["user"], reason=status.get("reason"))
            return is_allowed or None

        key = blake2b(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).digest()
        return bool(await self._access.get(key, review))

    async def _review(
        self, review: str, kind: str, path: str, spec: Mapping[str, Any], address: str
    ) -> Mapping[str, Any]:
        """Create a review and return its status.

        Raises:
            Refusal: the API server has not answered, or a moment ago it did not.
        """
        now = asyncio.get_running_loop().time
        self._require_answers(now())
        group = path.split("/")[2]
        body = orjson.dumps({"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
        try:
            answer = await self._client.request(
                "POST", path, resource=path.rpartition("/")[2], body=body, group=address
            )
        except (ApiError, aiohttp.ClientError, OSError, asyncio.CancelledError) as error:
            # Canceled by the time limit, or because the process ends.
            self._paused_until = now() + FAILURE_PAUSE_SECONDS
            self._observer.reviewed(review, "error")
            if isinstance(error, asyncio.CancelledError):
                raise
            fields = self._failures.record_fields(review, str(error), LOG_SECONDS)
            if fields is not None:
                log.warning("metrics review failed", review=review, error=describe(error), **fields)
            raise _unavailable() from error
        self._failures.discard(review)
        status: Mapping[str, Any] = orjson.loads(answer).get("status") or {}
        return status


class _Reviews(Generic[V]):
    """Results of reviews by key. One review of a key runs at a time; who comes meanwhile waits for its result."""

    def __init__(self, positive_seconds: float, negative_seconds: float) -> None:
        self._positive_seconds = positive_seconds
        self._negative_seconds = negative_seconds
        self._positive: BoundedDict[bytes, tuple[V, float]] = BoundedDict(REMEMBERED)
        self._negative: BoundedDict[bytes, float] = BoundedDict(REMEMBERED)
        """Loop times until which the results count. Apart, so that many that are negative evict none of the others."""
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def get(self, key: bytes, review: Callable[[], Awaitable[V | None]]) -> V | None:
        """Return the result for the key, None if it is negative; ``review`` finds it out if it is not known."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            now = asyncio.get_running_loop().time()
            if (found := self._positive.get(key)) and now < found[1]:
                return found[0]
            if now < self._negative.get(key, now):
                return None
            result = await review()
            now = asyncio.get_running_loop().time()
            if result is None:
                self._positive.pop(key, None)
                self._negative[key] = now + self._negative_seconds
            else:
                self._positive[key] = result, now + self._positive_seconds
            return result


def bearer_token(authorization: str) -> str:
    """Return the token of the header ``Authorization: Bearer TOKEN``; empty without one."""
    scheme, _, rest = authorization.strip().partition(" ")
    token = rest.strip()
    return token if scheme.lower() == "bearer" and _TOKEN.fullmatch(token) else ""


def _unauthorized() -> Refusal:
    return Refusal(401, "Unauthorized", {"WWW-Authenticate": "Bearer"})


def _unavailable() -> Refusal:
    return Refusal(503, "The API server cannot review requests at the moment", {"Retry-After": "1"})
