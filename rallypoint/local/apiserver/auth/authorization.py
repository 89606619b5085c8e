"""RBAC: evaluates the roles and bindings in the store as kube-apiserver does.

The administrator who runs the server is allowed everything. A pod has the permissions of its ServiceAccount; without
a binding it is allowed only discovery.

Source: Kubernetes, plugin/pkg/auth/authorizer/rbac/rbac.go, pkg/registry/rbac/validation/{rule,policy_comparator}.go,
pkg/registry/rbac/{role,rolebinding}/policybased/storage.go, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.

Differs: no controller aggregates ClusterRoles. The authorizer aggregates them on use, by ``matchLabels`` only, and adds
their own ``rules``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.auth.serviceaccounts import AUTHENTICATED, PREFIX, User
from rallypoint.local.apiserver.storage.store import Store

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
ROLES = ("roles", "clusterroles")
BINDINGS = ("rolebindings", "clusterrolebindings")

Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a request for a resource, or for a non-resource ``path``."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: ``pods/log``."""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Authorizer:
    """Authorizes requests with the roles and bindings of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def require(self, user: User, attributes: Attributes) -> None:
        """Raises:
        StatusError: 403, no rule allows the request.
        """
        if not self.allows(user, attributes):
            raise _forbidden(user, attributes)

    def allows(self, user: User, attributes: Attributes) -> bool:
        return MASTERS in user.groups or any(
            rule_allows(rule, attributes) for rule in self._rules_of(user, attributes.namespace)
        )

    def require_no_escalation(self, user: User, plural: str, obj: Json) -> None:
        """Reject a role or a binding that grants permissions which its author does not have.

        Raises:
            StatusError: 403, it grants more, and the user is allowed neither to ``escalate`` nor to ``bind`` the role.
        """
        meta = obj["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        if plural in ROLES:
            permitted = Attributes("escalate", GROUP, plural, namespace, name)
            granted: Sequence[Rule] = [*(obj.get("rules") or ())]
            if obj.get("aggregationRule"):
                granted = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, *granted]
        elif plural in BINDINGS:
            role = obj["roleRef"]
            kind = "roles" if role.get("kind") == "Role" else "clusterroles"
            permitted = Attributes("bind", GROUP, kind, namespace, role.get("name", ""))
            granted = [*self._rules_of_role(role, namespace)]
        else:
            return
        if self.allows(user, permitted):
            return
        held_rules = [*self._rules_of(user, namespace)]
        missing = [
            atom
            for rule in granted
            for atom in _break_down(rule)
            if not any(rule_allows(held_rule, atom) for held_rule in held_rules)
        ]
        if missing:
            groups = " ".join(f'"{group}"' for group in user.groups)
            lines = "\n".join(_format_atom(atom) for atom in missing)
            why = (
                f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
                f"{lines}"
            )
            raise errors.forbidden(GROUP, plural, name, why)

    def _rules_of(self, user: User, namespace: str) -> Iterator[Rule]:
        """Yield the rules that apply to a user cluster-wide and in a namespace."""
        for binding in self._objects("clusterrolebindings"):
            if _binds(binding, user, ""):
                yield from self._rules_of_role(binding["roleRef"], "")
        for binding in self._objects("rolebindings", namespace) if namespace else ():
            if _binds(binding, user, namespace):
                yield from self._rules_of_role(binding["roleRef"], namespace)

    def _rules_of_role(self, reference: Json, namespace: str) -> Iterator[Rule]:
        is_role = reference.get("kind") == "Role"
        roles = self._store.collection(f"{GROUP}/{'roles' if is_role else 'clusterroles'}").entries
        found = roles.get((namespace if is_role else "", reference.get("name", "")))
        if found is None:
            return
        yield from found.object.get("rules") or ()
        for selector in (found.object.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
            match_labels = (selector.get("matchLabels") or {}).items()
            for other in self._objects("clusterroles"):
                if match_labels and match_labels <= (other["metadata"].get("labels") or {}).items():
                    yield from other.get("rules") or ()

    def _objects(self, plural: str, namespace: str = "") -> Iterator[Json]:
        return (entry.object for entry in self._store.collection(f"{GROUP}/{plural}").select(namespace))


def rule_allows(rule: Rule, attributes: Attributes) -> bool:
    """Return whether a rule allows a request. ``*`` in the attributes is matched literally, for escalation checks."""
    if not _matches(rule.get("verbs"), attributes.verb):
        return False
    if attributes.path:
        return any(_matches_path(attributes.path, path) for path in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    return (
        _matches(rule.get("apiGroups"), attributes.group)
        and _matches_resource(rule.get("resources"), attributes.resource)
        and (not names or attributes.name in names)
    )


def _matches(allowed: Sequence[str] | None, requested: str) -> bool:
    return bool(allowed and ("*" in allowed or requested in allowed))


def _matches_resource(allowed: Sequence[str] | None, requested: str) -> bool:
    _, slash, subresource = requested.partition("/")
    return _matches(allowed, requested) or bool(slash and allowed and f"*/{subresource}" in allowed)


def _matches_path(path: str, granted: str) -> bool:
    if granted.endswith("*"):
        return path.startswith(granted[:-1])
    return path == granted


def _break_down(rule: Rule) -> Iterator[Attributes]:
    """Break a rule down into the single requests that it allows."""
    verbs: Sequence[str] = rule.get("verbs") or ()
    yield from (
        Attributes(verb, path=path) for verb, path in product(verbs, rule.get("nonResourceURLs") or ())
    )
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    for verb, group, resource, name in product(verbs, groups, resources, rule.get("resourceNames") or ("",)):
        yield Attributes(verb, group, resource, name=name)


def _format_atom(atom: Attributes) -> str:
    if atom.path:
        return f'{{NonResourceURLs:["{atom.path}"], Verbs:["{atom.verb}"]}}'
    names = f', ResourceNames:["{atom.name}"]' if atom.name else ""
    return f'{{APIGroups:["{atom.group}"], Resources:["{atom.resource}"]{names}, Verbs:["{atom.verb}"]}}'


def _binds(binding: Json, user: User, namespace: str) -> bool:
    return any(_is_subject(subject, user, namespace) for subject in binding.get("subjects") or ())


def _is_subject(subject: Json, user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user.name)
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return f"{PREFIX}{home}:{subject.get('name')}" == user.name
        case _:
            return False


def _forbidden(user: User, attributes: Attributes) -> StatusError:
    """Source: Kubernetes, apiserver/pkg/endpoints/handlers/responsewriters/errors.go."""
    if attributes.path:
        what = f'cannot {attributes.verb} path "{attributes.path}"'
        return StatusError(403, "Forbidden", f'forbidden: User "{user.name}" {what}', {})
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    what = (
        f'cannot {attributes.verb} resource "{attributes.resource}" in API group "{attributes.group}" {where}'
    )
    plural = attributes.resource.partition("/")[0]
    return errors.forbidden(attributes.group, plural, attributes.name, f'User "{user.name}" {what}')


READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
VIEW_RESOURCES: Mapping[str, tuple[str, ...]] = {
    "": ("configmaps", "endpoints", "events", "namespaces", "persistentvolumeclaims", "pods", "pods/log",
         "serviceaccounts", "services"),
    "autoscaling": ("horizontalpodautoscalers",),
    "batch": ("jobs",),
}  # fmt: skip
EDIT_RESOURCES: Mapping[str, tuple[str, ...]] = {
    "": ("configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "pods/attach", "pods/eviction", "pods/exec",
         "pods/portforward", "secrets", "serviceaccounts", "services"),
    "autoscaling": ("horizontalpodautoscalers",),
    "batch": ("jobs",),
}  # fmt: skip


def _rules(granted: Mapping[str, tuple[str, ...]], verbs: Iterable[str]) -> list[Json]:
    return [
        {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}
        for group, resources in granted.items()
    ]


def bootstrap_policy() -> Iterator[tuple[str, Json]]:
    """Yield the default roles and bindings of a cluster with their plurals.

    User-facing roles contain only the resources that this server serves.
    """
    view = _rules(VIEW_RESOURCES, READ)
    edit = [
        *view,
        {"apiGroups": [""], "resources": ["secrets"], "verbs": [*READ]},
        *_rules(EDIT_RESOURCES, WRITE),
    ]
    admin = [*edit, *_rules({GROUP: ("roles", "rolebindings")}, (*READ, *WRITE))]
    for name, rules in (("admin", admin), ("edit", edit), ("view", view)):
        labels = {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"}
        role = {"rules": rules, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]}}
        yield "clusterroles", {"metadata": {"name": name}, **role}
    everything = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    paths = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/healthz/*", "/livez", "/livez/*", "/openapi", "/openapi/*",
             "/readyz", "/readyz/*", "/version", "/version/"]  # fmt: skip
    discovery = [{"nonResourceURLs": paths, "verbs": ["get"]}]
    for name, rules, group in (
        ("cluster-admin", everything, MASTERS),
        ("system:discovery", discovery, AUTHENTICATED),
    ):
        yield "clusterroles", {"metadata": {"name": name}, "rules": rules}
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        subject = {"apiGroup": GROUP, "kind": "Group", "name": group}
        yield "clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
