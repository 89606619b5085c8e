"""Reconciles on the embedded API server: log lines name their job."""

from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from api.v1.pytorchjob import RESOURCE
from tests.support.faults import Refuse, Rule
from tests.support.harness import NAMESPACE, running_controller, start_harness


async def test_log_lines_of_a_reconcile_name_the_job() -> None:
    rule = Rule(Refuse(500, "InternalError"), verb="create", plural="pods", containing=b"broken-", times=2)
    with capture_logs([merge_contextvars]) as logs:
        async with start_harness(rule) as harness, running_controller(harness):
            await harness.submit("sound")
            await harness.submit("broken")
            await harness.settle(10)
            uid = (await harness.job("broken"))["metadata"]["uid"]

    failed = [line for line in logs if line["event"] == "reconcile failed"]
    assert failed
    for line in failed:
        wanted = {
            "controller": "pytorchjob-controller",
            "kind": RESOURCE.kind,
            "namespace": NAMESPACE,
            "name": "broken",
            "uid": uid,
        }
        assert {field: line[field] for field in wanted} == wanted
    others = [line for line in logs if line["event"] != "reconcile failed" and "controller" not in line]
    assert others
    assert not [line for line in others if "uid" in line], "lines outside of a reconcile name no job"
