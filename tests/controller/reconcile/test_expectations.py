"""Whether the caches can be trusted for a job."""

from controller.reconcile.expectations import Expectations


def test_a_lost_answer_makes_one_job_uncertain_until_the_server_is_asked() -> None:
    expectations = Expectations()
    expectations.lost_answer("a")

    assert not expectations.are_met("a")
    assert expectations.are_met("b")

    expectations.asked_server("a")
    assert expectations.are_met("a")


def test_asking_for_a_certain_job_does_no_harm() -> None:
    expectations = Expectations()
    expectations.asked_server("a")

    assert expectations.are_met("a")
