"""Impersonation: who may act as another user, and who that is.

Source: Kubernetes, apiserver/pkg/endpoints/filters/impersonation. Differs: a UID and extra fields need the permission and have no
effect, because nothing here reads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.auth.authorization import Attributes, Authorizer
from rallypoint.local.apiserver.auth.serviceaccounts import AUTHENTICATED, PREFIX, User, service_account

USER = "impersonate-user"
GROUP = "impersonate-group"
UID = "impersonate-uid"
EXTRA_PREFIX = "impersonate-extra-"
AUTHENTICATION_GROUP = "authentication.k8s.io"
ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"

Headers = Mapping[str, Sequence[str]]
"""The values of each header, by its name in lower case."""


def acting_user(authorizer: Authorizer, user: User, headers: Headers) -> User:
    """Return the user whom the headers impersonate, or ``user`` if there are none.

    Raises:
        StatusError: 403, ``user`` is not allowed to impersonate; 500, the headers name no user.
    """
    if not any(header in (USER, GROUP, UID) or header.startswith(EXTRA_PREFIX) for header in headers):
        return user
    name = next(iter(headers.get(USER, ())), "")
    if not name:
        message = (
            "Internal error occurred: requested groups, UID or extra fields without impersonating a user"
        )
        raise StatusError(500, "InternalError", message, {})
    for attributes in _requested(name, headers):
        authorizer.require(user, attributes)
    groups = tuple(headers.get(GROUP, ()))
    account = _service_account(name)
    if account and not groups:
        return service_account(*account)
    if not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
        groups += (UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED,)
    return User(name, groups)


def _requested(name: str, headers: Headers) -> Iterator[Attributes]:
    """Yield what the user must be allowed to impersonate."""
    if account := _service_account(name):
        yield Attributes("impersonate", "", "serviceaccounts", *account)
    else:
        yield Attributes("impersonate", "", "users", name=name)
    yield from (Attributes("impersonate", "", "groups", name=group) for group in headers.get(GROUP, ()))
    for header, values in headers.items():
        if header.startswith(EXTRA_PREFIX):
            resource = f"userextras/{unquote(header.removeprefix(EXTRA_PREFIX))}"
            yield from (
                Attributes("impersonate", AUTHENTICATION_GROUP, resource, name=value) for value in values
            )
    yield from (
        Attributes("impersonate", AUTHENTICATION_GROUP, "uids", name=uid) for uid in headers.get(UID, ())
    )


def _service_account(name: str) -> tuple[str, str] | None:
    """Return namespace and name of a ServiceAccount's user; None for other users."""
    namespace, colon, account = name.removeprefix(PREFIX).partition(":")
    is_account = name.startswith(PREFIX) and colon and namespace and account and ":" not in account
    return (namespace, account) if is_account else None
