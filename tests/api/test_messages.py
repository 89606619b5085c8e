"""Messages of Kubernetes components that say the same."""

import pytest

from api.messages import COMPARED_CHARACTERS, first_of, without_numbers


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            "back-off 10s restarting failed container=pytorch pod=train-worker-0_ml(6c1f5b9e-aaaa-4b3c-9d6e-0f1a2b3c4d5e)",
            "back-off 2m40s restarting failed container=pytorch pod=train-worker-4711_ml(0f1a2b3c-0d5e-abcd-beef-6c1f5b9eaaaa)",
            id="durations, indices and UIDs",
        ),
        pytest.param(
            "failed to resolve image@sha256:0a1b: dial tcp 10.0.0.1:443: i/o timeout after 1.5s",
            "failed to resolve image@sha256:ffee00: dial tcp 192.168.10.21:6443: i/o timeout after 30s",
            id="hashes and addresses",
        ),
        pytest.param(
            "exceeded quota: used: cpu=9, limited: cpu=10",
            "exceeded quota: used: cpu=950m, limited: cpu=10",
            id="quantities",
        ),
    ],
)
def test_messages_that_differ_only_in_numbers_are_equal(first: str, second: str) -> None:
    assert without_numbers(first) == without_numbers(second)


def test_words_are_preserved() -> None:
    assert without_numbers("manifest for train:v2 not found") == "manifest for train:# not found"


def test_only_the_beginning_of_a_message_counts() -> None:
    """A program may write any amount of text into its termination message."""
    beginning = "x" * COMPARED_CHARACTERS

    assert without_numbers(beginning + "and so on") == without_numbers(beginning + "or else") == beginning


@pytest.mark.parametrize(
    ("texts", "expected"),
    [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")],
)
def test_the_first_texts_are_named_and_the_others_counted(texts: list[str], expected: str) -> None:
    assert first_of(texts, 2) == expected
