"""BoundedDict keeps the newest entries."""

from controller.kube.bounded_dict import BoundedDict


def test_the_oldest_entry_is_evicted() -> None:
    memory = BoundedDict[str, int](2)
    for number, key in enumerate("abac"):
        memory[key] = number

    assert dict(memory) == {"a": 2, "c": 3}
