"""Impersonation: who may act as another user, and who that is.

Source: Kubernetes, apiserver/pkg/endpoints/filters/impersonation. Differs: a UID and extra fields need the permission and have no
effect, because nothing here reads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from urllib.parse import unquote

from rallypoint.local.apiserver.apimachinery.errors import bad_request
from rallypoint.local.apiserver.auth.authorization import Attributes, Authorizer
from rallypoint.local.apiserver.auth.serviceaccounts import AUTHENTICATED, PREFIX, User, service_account

HEADER_PREFIX = "impersonate-"
"""Of the names of all these headers, in lower case."""
USER = "impersonate-user"
GROUP = "impersonate-group"
UID = "impersonate-uid"
EXTRA_PREFIX = "impersonate-extra-"
AUTHENTICATION_GROUP = "authentication.k8s.io"
ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"

Headers = Mapping[str, Sequence[str]]
"""The values of each header of impersonation, by its name in lower case."""


def acting_user(authorizer: Authorizer, user: User, headers: Headers) -> User:
    """Return the user whom the headers impersonate, or ``user`` if there are none. An empty name or UID is none.

    Differs: kube-apiserver replaces the bytes of values that are not UTF-8.

    Raises:
        StatusError: 403, ``user`` is not allowed to impersonate; 400, the headers name no user, or are not UTF-8.
    """
    name = next(iter(headers.get(USER, ())), "")
    if not name:
        if GROUP in headers or any(headers.get(UID, ())) or any(map(_is_extra, headers)):
            raise bad_request("requested groups, UID or extra fields without impersonating a user name")
        return user
    if not all(map(_is_utf8, chain(headers, *headers.values()))):
        raise bad_request("the impersonation headers are not UTF-8")
    for attributes in _requested(name, headers):
        authorizer.require(user, attributes)
    groups = tuple(headers.get(GROUP, ()))
    account = _service_account(name)
    if account and not groups:
        return service_account(*account)
    if UNAUTHENTICATED not in groups:
        default = UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED
        groups += () if default in groups else (default,)
    return User(name, groups)


def _is_extra(header: str) -> bool:
    return header.startswith(EXTRA_PREFIX)


def _is_utf8(text: str) -> bool:
    """Return whether the bytes of a header were UTF-8. The server decodes others to surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _requested(name: str, headers: Headers) -> Iterator[Attributes]:
    """Yield what the user must be allowed to impersonate."""
    if account := _service_account(name):
        yield Attributes("impersonate", "", "serviceaccounts", *account)
    else:
        yield Attributes("impersonate", "", "users", name=name)
    yield from (Attributes("impersonate", "", "groups", name=group) for group in headers.get(GROUP, ()))
    for header, values in headers.items():
        if _is_extra(header):
            resource = f"userextras/{unquote(header.removeprefix(EXTRA_PREFIX))}"
            yield from (
                Attributes("impersonate", AUTHENTICATION_GROUP, resource, name=value) for value in values
            )
    yield from (
        Attributes("impersonate", AUTHENTICATION_GROUP, "uids", name=uid)
        for uid in headers.get(UID, ())
        if uid
    )


def _service_account(name: str) -> tuple[str, str] | None:
    """Return namespace and name of a ServiceAccount's user; None for other users."""
    namespace, colon, account = name.removeprefix(PREFIX).partition(":")
    is_account = name.startswith(PREFIX) and colon and namespace and account and ":" not in account
    return (namespace, account) if is_account else None
