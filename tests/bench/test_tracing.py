"""The worker that measures traces."""

import pytest

from bench import tracing_worker
from tests.support.scripted import ScriptedServer, fine


@pytest.mark.looptime(False)
async def test_the_worker_makes_the_same_calls_with_traces_and_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing_worker, "RECONCILES", 2)
    calls: list[list[tuple[str, str]]] = []
    traced: list[bool] = []
    for mode in (False, True):
        async with ScriptedServer(fine) as server:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
            rounds = tracing_worker.measure(server.url, iter(range(3)), traced=mode)
            assert [microseconds > 0 async for microseconds in rounds] == [True] * 3
        requests = [request for request in server.requests if request.path != "/v1/traces"]
        calls.append(sorted((request.method, request.path) for request in requests))
        traced += {"traceparent" in request.headers for request in requests}
        assert len(requests) < len(server.requests) if mode else True

    assert calls[0] == calls[1]
    assert len(calls[0]) == 6 * (tracing_worker.PODS_PER_RECONCILE + 1)
    assert traced == [False, True]
