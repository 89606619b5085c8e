"""A scenario without the operator is expected to fail."""

import pytest

from rallypoint.testing.controlplane.process import ProcessFailed
from tests.support.schedulers.operator import expected_failure


def test_a_scenario_that_fails_is_an_expected_failure_with_the_first_line_of_its_error() -> None:
    with (
        pytest.raises(pytest.xfail.Exception, match=r"^ProcessFailed: pods not after 5 s$"),
        expected_failure(),
    ):
        raise ProcessFailed("pods not after 5 s\n--- kueue\nits log")


def test_a_scenario_that_passes_is_a_failed_test() -> None:
    with pytest.raises(pytest.fail.Exception, match="passes without the operator"), expected_failure():
        pass


def test_an_error_in_a_scenario_itself_is_no_expected_failure() -> None:
    with pytest.raises(NameError), expected_failure():
        raise NameError("name 'queu' is not defined")
