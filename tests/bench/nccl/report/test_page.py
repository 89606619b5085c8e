"""Records as self-contained pages."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from typing_extensions import override

from bench.nccl.report.page import page, warnings
from bench.nccl.schema import VERSION, Fault, Node, Pairs, Record, Scaling, ScalingRun, Skipped, World

VOID = {"meta", "br", "hr"}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(text: str) -> Tags:
    found = Tags()
    found.feed(text)
    assert found.open == []
    return found


def test_the_page_is_self_contained(make_record: Callable[..., Record]) -> None:
    text = page(make_record())

    found = tags(text)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in found.elements}
    assert not any(name in {"src", "href"} for _, attributes in found.elements for name in attributes)
    assert set(re.findall(r"https?://[^\s\"]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in text


def test_the_content_of_a_page(make_record: Callable[..., Record]) -> None:
    pairs = Pairs(1024, [[0, 9, 1, 9], [9, 0, 1, 9], [1, 1, 0, 1], [9, 9, 1, 0]])
    node = Node(
        hosts=["pod-0"],
        device="NVIDIA H200",
        topology="GPU0 <NV18>",
        settings={"NCCL_DEBUG": "INFO"},
        infiniband={"mlx5_0:1": "400 Gb/sec"},
    )
    other = Node(hosts=["pod-1"], device="NVIDIA H200", nvlink={"0": "17 × 26.562 GB/s, 1 × <inactive>"})
    world = World(ranks=4, nodes=[node, other])

    text = page(
        make_record(
            pairs=pairs, world=world, skipped=[Skipped("alltoall", "int8", in_place=False, why="too small")]
        )
    )

    for words in (
        "NVIDIA H200",
        "GPU0 &lt;NV18&gt;",
        "NCCL_DEBUG",
        "400 Gb/sec",
        "<h2>pod-1</h2>",
        "17 × 26.562 GB/s, 1 × &lt;inactive&gt;",
        "alltoall of int8, out of place: too small",
        "0123456789ab",
    ):
        assert words in text
    assert text.count("<svg") == 2
    assert "slow: rank 2 (node node-1, pod pod-1, GPU 0)" in text


def test_warnings_come_first(make_record: Callable[..., Record]) -> None:
    assert warnings(make_record()) == []
    record = make_record(
        state="partial", why="<b>died</b>", config={"backend": "gloo", "fault": Fault("die", 1)}
    )

    assert len(warnings(record)) == 3
    assert "Partial: &lt;b&gt;died&lt;/b&gt;" in page(record)


def test_a_record_without_points(make_record: Callable[..., Record]) -> None:
    tags(page(make_record(points=[], world=None, ranks=[], state="partial", why="it has not started")))


def test_scaling() -> None:
    fields: dict[str, Any] = {
        "schema_version": VERSION,
        "state": "complete",
        "why": "",
        "started": "",
        "commit": {"id": "0", "changed": True},
        "environment": {"cores": 2, "cpu": "a CPU", "kernel": "Linux", "python": "CPython"},
        "backend": "gloo",
        "gpus": 1,
        "model": "small",
        "batch": 8,
        "share_gpu": False,
    }
    text = page(Scaling(**fields, runs=[ScalingRun("mpijob", 1, 1, [5.0])]))

    tags(text)
    assert "Scaling efficiency over nodes" in text
    assert "these figures are not those of GPUs" in text
