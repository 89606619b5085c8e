"""The headers of a user who acts as another one."""

from typing import Any

import pytest

from controller.kube.impersonation import impersonation_headers


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        pytest.param({"token": "t"}, [], id="nobody else"),
        pytest.param({"as": "jane"}, [("Impersonate-User", "jane")], id="a user"),
        pytest.param(
            {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"]},
            [
                ("Impersonate-User", "jane"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
            ],
            id="a user with UID and groups",
        ),
        pytest.param(
            {"as": "jane", "as-user-extra": {"acme.com/project": ["x", "y"], "50%": ["z"]}},
            [
                ("Impersonate-User", "jane"),
                ("Impersonate-Extra-acme.com%2Fproject", "x"),
                ("Impersonate-Extra-acme.com%2Fproject", "y"),
                ("Impersonate-Extra-50%25", "z"),
            ],
            id="extra fields",
        ),
    ],
)
def test_the_headers_of_a_user(user: dict[str, Any], headers: list[tuple[str, str]]) -> None:
    assert list(impersonation_headers(user)) == headers


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        pytest.param({"as-groups": ["system:masters"]}, "need the field as", id="groups without a user"),
        pytest.param({"as-user-extra": {"a": ["b"]}}, "need the field as", id="extra without a user"),
        pytest.param({"as": ["jane"]}, "as is not a string", id="a list of users"),
        pytest.param({"as": "jane", "as-groups": "a"}, "as-groups is not a list", id="one group as text"),
        pytest.param({"as": "jane", "as-user-extra": ["a"]}, "not a mapping", id="extra as a list"),
        pytest.param({"as": "jane", "as-user-extra": {"a": "b"}}, "a is not a list", id="extra as text"),
        pytest.param({"as": "jane\r\nX: y"}, "as contains a control character", id="two lines"),
        pytest.param(
            {"as": "jane", "as-groups": ["a\nb"]}, "as-groups contains a control", id="two lines in a group"
        ),
    ],
)
def test_malformed_fields_are_refused(user: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        impersonation_headers(user)
