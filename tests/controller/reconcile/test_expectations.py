"""Whether the caches can be trusted for a job."""

from controller.reconcile.expectations import Expectations


def test_a_lost_answer_makes_one_job_uncertain_until_the_server_is_asked() -> None:
    expectations = Expectations()
    expectations.lost_answer("a")

    assert not expectations.are_met("a")
    assert expectations.are_met("b")

    expectations.asked_server("a")
    assert expectations.are_met("a")


def test_a_job_may_be_gone_until_it_is_seen_again() -> None:
    expectations = Expectations()
    assert not expectations.may_be_gone("a", 7)

    expectations.made_all("a", 7)
    assert expectations.may_be_gone("a", 7)
    assert not expectations.may_be_gone("a", 8)
    assert not expectations.may_be_gone("b", 7)

    expectations.forget("a")
    assert not expectations.may_be_gone("a", 7)


def test_asking_for_a_certain_job_does_no_harm() -> None:
    expectations = Expectations()
    expectations.asked_server("a")

    assert expectations.are_met("a")
