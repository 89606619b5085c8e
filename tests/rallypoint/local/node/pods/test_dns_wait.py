"""The wait container of training-operator, answered by the node."""

import asyncio
import signal

import pytest

from rallypoint.local.node.pods.dns_wait import DNSWait, Wait, of

ORIGINAL = (
    "err=1;for i in $(seq 100); do if nslookup job-master-0; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


@pytest.mark.parametrize(
    ("container", "wait"),
    [
        pytest.param(
            {"command": ["sh", "-c", ORIGINAL]}, Wait("job-master-0", 200.0), id="training-operator's own"
        ),
        pytest.param(
            {"command": ["sh", "-c", "until nslookup job-master-0; do echo waiting; sleep 2; done;"]},
            Wait("job-master-0", None),
            id="without an end",
        ),
        pytest.param(
            {"command": ["sh"], "args": ["-c", ORIGINAL]}, Wait("job-master-0", 200.0), id="in the arguments"
        ),
        pytest.param({"command": ["nslookup", "job-master-0"]}, None, id="one question is no loop"),
        pytest.param({"command": ["sh", "-c", "for i in 1 2; do echo $i; done"]}, None, id="another loop"),
        pytest.param({}, None, id="no command"),
    ],
)
def test_of(container: dict[str, list[str]], wait: Wait | None) -> None:
    assert of(container) == wait


async def test_done_when_the_name_resolves() -> None:
    known: set[str] = set()
    output: list[bytes] = []
    waiting = asyncio.create_task(DNSWait(Wait("a", None), known.__contains__, output.append).wait())
    await asyncio.sleep(60)
    assert not waiting.done()
    known.add("a")

    assert await waiting == 0
    assert b"".join(output) == b"waiting until a resolves\na resolves\n"


async def test_gives_up_when_the_container_would() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    assert await DNSWait(Wait("a", 200.0), lambda _: False, lambda _: None).wait() == 1
    assert loop.time() - began == 200.0


async def test_ends_by_a_signal() -> None:
    wait = DNSWait(Wait("a", None), lambda _: False, lambda _: None)
    waiting = asyncio.create_task(wait.wait())
    await asyncio.sleep(1)
    wait.send(signal.SIGTERM)

    assert await waiting == 143
