"""The headers of a user who acts as another one: ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra`` of a kubeconfig.

Source: client-go, transport/round_trippers.go, impersonatingRoundTripper; tools/clientcmd/api/v1, AuthInfo.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LEGAL = "!#$&'*+-.^_`|~"
"""What a header's name may contain, besides letters and digits. ``%`` is legal, and the escape."""


def impersonation_headers(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the headers for a user of a kubeconfig; empty if it acts as nobody else. A header can occur more than once.

    Raises:
        ValueError: a field has another type or contains a control character, or groups or other fields are given without ``as``.
    """
    name, uid = _text(user, "as"), _text(user, "as-uid")
    groups, extra = _texts(user, "as-groups"), user.get("as-user-extra") or {}
    if not isinstance(extra, Mapping):
        raise ValueError("as-user-extra is not a mapping")
    if not name:
        if uid or groups or extra:
            raise ValueError("as-uid, as-groups and as-user-extra need the field as")
        return ()
    return (
        ("Impersonate-User", name),
        *([("Impersonate-Uid", uid)] if uid else []),
        *(("Impersonate-Group", group) for group in groups),
        *(
            (f"Impersonate-Extra-{quote(str(key), safe=_LEGAL)}", value)
            for key in extra
            for value in _texts(extra, key)
        ),
    )


def _text(user: Mapping[str, Any], field: str) -> str:
    value = user.get(field) or ""
    if not isinstance(value, str):
        raise ValueError(f"{field} is not a string")
    return _checked(field, value)


def _texts(user: Mapping[str, Any], field: str) -> list[str]:
    value = user.get(field) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{field} is not a list of strings")
    return [_checked(field, text) for text in value]


def _checked(field: str, text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError(f"{field} contains a control character")
    return text
