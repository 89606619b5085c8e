"""Which Kubernetes releases store the restartPolicyRules that restarts in place need."""

import pytest

from controller.reconcile.restart_rules import FIRST_RELEASE, release


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'{"major": "1", "minor": "34"}', False),
        (b'{"major": "1", "minor": "35"}', True),
        (b'{"major": "1", "minor": "36+"}', True),
        (b'{"major": "2", "minor": "0"}', True),
        (b'{"major": "1", "minor": ""}', False),
    ],
)
def test_releases_from_1_35_on_do(answer: bytes, expected: bool) -> None:
    assert (release(answer) >= FIRST_RELEASE) is expected
