"""How the types of the pure code are written in logs and messages."""

from controller.domain import Key, Problem, Role


def test_a_key_is_written_as_namespace_and_name() -> None:
    assert str(Key("ml", "train")) == "ml/train"


def test_a_problem_is_written_with_its_field() -> None:
    assert str(Problem("spec.x", "Required value")) == "spec.x: Required value"


def test_a_role_is_labelled_in_lower_case() -> None:
    assert Role(name="Worker", replicas=1, restart_policy="Never", template={}).label == "worker"
