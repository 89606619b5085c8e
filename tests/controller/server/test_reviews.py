"""Who may read the metrics, and how many reviews that costs the API server."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from controller.kube.token_bucket import TokenBucket
from controller.server.reviews import (
    ACCESS_ALLOWED_SECONDS,
    ACCESS_DENIED_SECONDS,
    ADDRESS_TOKENS_BURST,
    FAILURE_PAUSE_SECONDS,
    REMEMBERED,
    REVIEW_SECONDS,
    REVIEWS_AT_ONCE,
    REVIEWS_BURST,
    REVIEWS_PER_SECOND,
    TOKEN_ACCEPTED_SECONDS,
    TOKEN_REFUSED_SECONDS,
    Refusal,
    Reviewer,
    _Reviews,
    bearer_token,
)
from controller.telemetry import logs as logging_setup
from tests.support.scripted import ReceivedRequest, answer_json, calling, status_object

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PROMETHEUS = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}


class Api:
    """The API server, as far as reviews go."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {
            "good": PROMETHEUS,
            "other": {**PROMETHEUS, "username": "system:serviceaccount:team:default"},
        }
        self.allowed = {PROMETHEUS["username"]}
        self.audiences: list[str] | None = None
        self.specs: list[tuple[str, dict[str, Any]]] = []
        self.status = 201
        self.delay_seconds = 0.0
        self.denied = False

    async def answer(self, request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        spec = orjson.loads(received.body)["spec"]
        self.specs.append((received.path, spec))
        await asyncio.sleep(self.delay_seconds)
        if self.status >= 400:
            return answer_json(status_object(self.status, "Broken", "the webhook failed"), self.status)
        if received.path == TOKEN_REVIEWS:
            user = self.users.get(spec["token"])
            status: dict[str, Any] = {"authenticated": user is not None, "user": user or {}}
            if user is None:
                status["error"] = f"invalid bearer token {spec['token']}"
            if self.audiences is not None:
                status["audiences"] = self.audiences
        else:
            status = {"allowed": spec["user"] in self.allowed, "denied": self.denied}
        return answer_json({"status": status}, 201)

    def counts(self) -> tuple[int, int]:
        """Return how many tokens and how many accesses it has reviewed."""
        paths = Counter(path for path, _ in self.specs)
        return paths[TOKEN_REVIEWS], paths[ACCESS_REVIEWS]


class Observed(Counter[tuple[str, str]]):
    def reviewed(self, review: str, result: str) -> None:
        self[review, result] += 1


class Endpoint:
    """Requests to ``/metrics``, as the reviewer sees them."""

    def __init__(self, api: Api, reviewer: Reviewer, observed: Observed) -> None:
        self.api = api
        self.observed = observed
        self._reviewer = reviewer

    async def get(self, token: str = "good", address: str = "10.0.0.1", verb: str = "get") -> int:
        """Return the status of the answer."""
        try:
            await self._reviewer.check(f"Bearer {token}", address, verb, "/metrics")
        except Refusal as refusal:
            return refusal.status
        return 200


@asynccontextmanager
async def endpoint(*audiences: str) -> AsyncGenerator[Endpoint]:
    api, observed = Api(), Observed()
    limits: dict[str, Any] = {
        "in_flight": REVIEWS_AT_ONCE,
        "rate_limiter": TokenBucket(REVIEWS_PER_SECOND, REVIEWS_BURST),
    }
    async with calling(api.answer, **limits) as (client, _):
        yield Endpoint(api, Reviewer(client, observed, audiences), observed)


async def test_a_user_who_may_get_the_metrics_gets_them() -> None:
    async with endpoint() as metrics:
        assert await metrics.get("good") == 200

    (token_path, token), (access_path, access) = metrics.api.specs
    assert (token_path, token) == (TOKEN_REVIEWS, {"token": "good"})
    assert (access_path, access) == (
        ACCESS_REVIEWS,
        {
            "user": PROMETHEUS["username"],
            "uid": "u",
            "groups": PROMETHEUS["groups"],
            "extra": PROMETHEUS["extra"],
            "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
        },
    )
    assert metrics.observed == {("token", "allowed"): 1, ("access", "allowed"): 1}


async def test_a_user_who_may_not_is_forbidden() -> None:
    async with endpoint() as metrics:
        assert await metrics.get("other") == 403
    assert metrics.observed == {("token", "allowed"): 1, ("access", "denied"): 1}


async def test_a_denial_of_one_authorizer_counts_more_than_an_allowance() -> None:
    async with endpoint() as metrics:
        metrics.api.denied = True
        assert await metrics.get("good") == 403


async def test_a_token_that_is_not_valid_is_unauthorized_and_its_access_is_not_reviewed() -> None:
    async with endpoint() as metrics:
        assert await metrics.get("stolen") == 401
    assert metrics.api.counts() == (1, 0)
    assert metrics.observed == {("token", "denied"): 1}


@pytest.mark.parametrize(
    ("header", "token"),
    [
        pytest.param("Bearer abc", "abc", id="a token"),
        pytest.param("bearer  abc ", "abc", id="another spelling"),
        pytest.param("", "", id="no header"),
        pytest.param("Bearer", "", id="no token"),
        pytest.param("Bearer ", "", id="an empty token"),
        pytest.param("Basic YTpi", "", id="another scheme"),
        pytest.param("Bearer a b", "", id="two words"),
        pytest.param("Bearer \udcff", "", id="bytes that are no text"),
        pytest.param("Bearer ä", "", id="letters that no token has"),
    ],
)
async def test_only_a_bearer_token_is_reviewed(header: str, token: str) -> None:
    assert bearer_token(header) == token
    if not token:
        async with endpoint() as metrics:
            with pytest.raises(Refusal) as refusal:
                await metrics._reviewer.check(header, "10.0.0.1", "get", "/metrics")
        assert refusal.value.status == 401
        assert refusal.value.headers == {"WWW-Authenticate": "Bearer"}
        assert metrics.api.specs == []


@pytest.mark.parametrize(
    ("returned", "status"),
    [
        pytest.param(["other", "metrics"], 200, id="one of them"),
        pytest.param(["https://kubernetes.default.svc"], 401, id="the API server's"),
        pytest.param([], 401, id="none"),
        pytest.param(None, 401, id="a server that does not check audiences"),
    ],
)
async def test_a_token_must_have_a_requested_audience(returned: list[str] | None, status: int) -> None:
    async with endpoint("metrics", "more") as metrics:
        metrics.api.audiences = returned
        assert await metrics.get("good") == status
    assert metrics.api.specs[0][1]["audiences"] == ["metrics", "more"]


Change = Callable[[Api], None]


def revoke(api: Api) -> None:
    api.users.clear()


def deny(api: Api) -> None:
    api.allowed.clear()


def accept(api: Api) -> None:
    api.users["new"] = PROMETHEUS


def allow(api: Api) -> None:
    api.allowed.add("system:serviceaccount:team:default")


@pytest.mark.parametrize(
    ("token", "before", "change", "after", "seconds"),
    [
        pytest.param("good", 200, revoke, 401, TOKEN_ACCEPTED_SECONDS, id="a token that is revoked"),
        pytest.param("new", 401, accept, 200, TOKEN_REFUSED_SECONDS, id="a token that becomes valid"),
        pytest.param("good", 200, deny, 403, ACCESS_ALLOWED_SECONDS, id="a right that is taken"),
        pytest.param("other", 403, allow, 200, ACCESS_DENIED_SECONDS, id="a right that is granted"),
    ],
)
async def test_results_count_for_a_limited_time(
    token: str, before: int, change: Change, after: int, seconds: float
) -> None:
    async with endpoint() as metrics:
        assert await metrics.get(token) == before
        change(metrics.api)
        await asyncio.sleep(seconds - 1)
        assert await metrics.get(token) == before
        await asyncio.sleep(1.5)
        assert await metrics.get(token) == after


async def test_a_scraper_costs_one_review_a_minute() -> None:
    async with endpoint() as metrics:
        for _ in range(60):
            assert await metrics.get("good") == 200
            await asyncio.sleep(15)

    assert metrics.api.counts() == (15, 3)


async def test_concurrent_requests_share_a_review() -> None:
    async with endpoint() as metrics:
        metrics.api.delay_seconds = 2
        assert await asyncio.gather(*(metrics.get("good") for _ in range(20))) == [200] * 20
    assert metrics.api.counts() == (1, 1)


@pytest.mark.parametrize("status", [403, 404, 422, 500, 503])
async def test_nothing_is_served_when_a_review_fails(status: int) -> None:
    async with endpoint() as metrics:
        metrics.api.status = status
        assert await metrics.get("good") == 503
        metrics.api.status = 201
        await asyncio.sleep(FAILURE_PAUSE_SECONDS + 0.1)
        assert await metrics.get("good") == 200
    assert metrics.observed["token", "error"] == 1


async def test_nothing_is_served_when_the_review_of_a_known_token_fails() -> None:
    """A revoked token must not stay valid because the API server is away."""
    async with endpoint() as metrics:
        assert await metrics.get("good") == 200
        metrics.api.status = 500
        await asyncio.sleep(TOKEN_ACCEPTED_SECONDS + 1)
        assert await metrics.get("good") == 503


async def test_a_review_without_an_answer_ends() -> None:
    async with endpoint() as metrics:
        metrics.api.delay_seconds = 3600
        start = asyncio.get_running_loop().time()
        assert await metrics.get("good") == 503
        assert asyncio.get_running_loop().time() - start == pytest.approx(REVIEW_SECONDS, abs=0.1)


async def test_an_outage_costs_one_review_a_second() -> None:
    async with endpoint() as metrics:
        metrics.api.status = 500
        for _ in range(100):
            assert await metrics.get("good") == 503
            await asyncio.sleep(0.1)
    assert metrics.api.counts()[0] <= 11


async def test_a_failing_review_is_logged_once_a_minute() -> None:
    async with endpoint() as metrics:
        metrics.api.status = 403
        with capture_logs() as logs:
            for _ in range(50):
                await metrics.get("good")
                await asyncio.sleep(1.1)
    assert [line["event"] for line in logs] == ["metrics review failed"]
    assert logs[0]["error"] == "the webhook failed"


async def test_a_client_with_ever_new_tokens_is_limited_and_others_are_not() -> None:
    async with endpoint() as metrics:
        guesses = [await metrics.get(f"guess-{number}", "10.0.0.66") for number in range(200)]
        assert await metrics.get("good", "10.0.0.1") == 200
        assert await metrics.get("good", "10.0.0.66") == 200  # known by now

    assert set(guesses) == {401, 429}
    assert guesses.count(401) <= ADDRESS_TOKENS_BURST + 1
    assert metrics.observed["token", "limited"] == guesses.count(429)


async def test_the_limit_names_when_to_retry() -> None:
    async with endpoint() as metrics:
        for number in range(ADDRESS_TOKENS_BURST):
            await metrics.get(f"guess-{number}")
        with pytest.raises(Refusal) as refusal:
            await metrics._reviewer.check("Bearer guess", "10.0.0.1", "get", "/metrics")
    assert refusal.value.status == 429
    assert refusal.value.headers == {"Retry-After": "1"}


async def test_many_clients_with_new_tokens_leave_room_for_a_scraper() -> None:
    """The addresses take turns at the reviews, of which only some are sent per second."""
    async with endpoint() as metrics:

        async def flood(number: int) -> None:
            for guess in range(20):
                await metrics.get(f"{number}-{guess}", f"10.0.1.{number}")

        start = asyncio.get_running_loop().time()
        floods = [asyncio.create_task(flood(number)) for number in range(30)]
        await asyncio.sleep(1)
        assert await metrics.get("good") == 200
        await asyncio.gather(*floods)
        seconds = asyncio.get_running_loop().time() - start

    assert metrics.api.counts()[0] <= REVIEWS_BURST + REVIEWS_PER_SECOND * seconds + 1


async def test_many_negative_results_displace_no_positive_one() -> None:
    reviewed = Counter[bytes]()

    async def review(key: bytes) -> str | None:
        reviewed[key] += 1
        return "user" if key == b"good" else None

    reviews = _Reviews[str](60, 10)
    for key in (b"good", *(b"%d" % number for number in range(REMEMBERED + 1)), b"good", b"0"):
        await reviews.get(key, partial(review, key))

    assert (reviewed[b"good"], reviewed[b"0"]) == (1, 2)


async def test_no_token_is_in_a_log_or_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.configure("json", "debug")
    token = "an-opaque-token-of-a-webhook"
    async with endpoint() as metrics:
        assert await metrics.get(token) == 401
        metrics.api.users[token] = {**PROMETHEUS, "username": "x"}
        await asyncio.sleep(TOKEN_REFUSED_SECONDS + 1)
        assert await metrics.get(token) == 403
        metrics.api.status = 500
        await asyncio.sleep(TOKEN_ACCEPTED_SECONDS + 1)
        assert await metrics.get(token) == 503

    logged = capsys.readouterr().err
    assert logged.count("\n") >= 3
    assert "token refused" in logged
    assert token not in logged
