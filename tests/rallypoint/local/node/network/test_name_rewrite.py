"""Names and paths replaced in text."""

import pytest

from rallypoint.local.node.network import name_rewrite

KNOWN = {"job-master-0": "127.9.1.1", "job-worker-1": "127.9.1.2", "job-master-0.default.svc": "127.9.1.1"}


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        pytest.param("job-master-0", "127.9.1.1", id="the whole text"),
        pytest.param("tcp://job-master-0:23456", "tcp://127.9.1.1:23456", id="in a URL"),
        pytest.param("job-master-0:1,job-worker-1:1", "127.9.1.1:1,127.9.1.2:1", id="in a list"),
        pytest.param("job-worker-1:2222", "127.9.1.2:20000", id="with a port that is another one"),
        pytest.param("other:2222", "other:2222", id="another name with that port"),
        pytest.param('{"worker": ["job-worker-1:2222"]}', '{"worker": ["127.9.1.2:20000"]}', id="in JSON"),
        pytest.param("--addr=job-master-0", "--addr=127.9.1.1", id="in a flag"),
        pytest.param("ssh me@job-worker-1 date", "ssh me@127.9.1.2 date", id="after a user"),
        pytest.param("job-master-0.default.svc:80", "127.9.1.1:80", id="a long form"),
        pytest.param("see job-master-0.", "see 127.9.1.1.", id="before a full stop"),
        pytest.param("job-master-01", "job-master-01", id="the beginning of another name"),
        pytest.param("job-master-0-data", "job-master-0-data", id="the beginning of a longer name"),
        pytest.param("my-job-master-0", "my-job-master-0", id="the end of another name"),
        pytest.param("job-master-0.log", "job-master-0.log", id="a file"),
        pytest.param("/ckpt/job-master-0/x", "/ckpt/job-master-0/x", id="a part of a path"),
        pytest.param("_job-master-0", "_job-master-0", id="after an underscore"),
    ],
)
def test_replace(text: str, replaced: str) -> None:
    assert name_rewrite.replace(text, find) == replaced


def find(name: str, port: int | None) -> tuple[str, int | None] | None:
    """Port 2222 is another one here."""
    address = KNOWN.get(name)
    return None if address is None else (address, 20000 if port == 2222 else port)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        pytest.param("a", ("here", "a"), id="a bare name is of this namespace"),
        pytest.param("a.there", ("there", "a"), id="with a namespace"),
        pytest.param("a.there.svc", ("there", "a"), id="with svc"),
        pytest.param("a.there.svc.cluster.local", ("there", "a"), id="in full"),
        pytest.param("pod.sub", ("here", "pod.sub"), id="a pod of a subdomain"),
        pytest.param(
            "pod.sub.there.svc", ("there", "pod.sub"), id="a pod of a subdomain, with its namespace"
        ),
    ],
)
def test_split(word: str, meant: tuple[str, str]) -> None:
    assert name_rewrite.split(word, "here", {"there"}) == meant


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        pytest.param("/data", "/v/data", id="the path itself"),
        pytest.param("--in=/data/train.csv", "--in=/v/data/train.csv", id="below it"),
        pytest.param("/data/", "/v/data/", id="with a slash"),
        pytest.param("/database", "/database", id="a longer name"),
        pytest.param("/x/data", "/x/data", id="the end of another path"),
        pytest.param("/data/cache/x", "/v/cache/x", id="the longest mount wins"),
    ],
)
def test_replace_paths(text: str, replaced: str) -> None:
    assert name_rewrite.replace_paths(text, {"/data": "/v/data", "/data/cache": "/v/cache"}) == replaced


def test_replaced_paths_are_not_replaced_again() -> None:
    assert name_rewrite.replace_paths("/a /home", {"/a": "/home/me/a", "/home": "/x"}) == "/home/me/a /x"
