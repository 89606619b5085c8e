"""Roles and bindings: defaults and validation.

Source: kubernetes, pkg/apis/rbac/v1/defaults.go and pkg/apis/rbac/validation/validation.go.
"""

from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.selectors import validate_label_selector
from rallypoint.local.apiserver.apimachinery.unstructured import Json, set_if_empty
from rallypoint.local.apiserver.auth.authorization import GROUP
from rallypoint.local.apiserver.resources.resource import Strategy

SUBJECT_KINDS = ("ServiceAccount", "User", "Group")


def _default_role(role: Json) -> Json:
    role.setdefault("rules", None)
    return role


def _validate_role(role: Json) -> Iterator[FieldError]:
    for i, rule in enumerate(role.get("rules") or ()):
        yield from _rule(rule, f"rules[{i}]")
        if rule.get("nonResourceURLs"):
            detail = "namespaced rules cannot apply to non-resource URLs"
            yield field_errors.invalid(f"rules[{i}].nonResourceURLs", rule["nonResourceURLs"], detail)


def _validate_cluster_role(role: Json) -> Iterator[FieldError]:
    for i, rule in enumerate(role.get("rules") or ()):
        yield from _rule(rule, f"rules[{i}]")
    if role.get("aggregationRule") is None:
        return
    selectors = role["aggregationRule"].get("clusterRoleSelectors") or ()
    path = "aggregationRule.clusterRoleSelectors"
    if not selectors:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield field_errors.required(path, detail)
    for i, selector in enumerate(selectors):
        yield from validate_label_selector(selector, f"{path}[{i}]")


def _rule(rule: Json, path: str) -> Iterator[FieldError]:
    if not rule.get("verbs"):
        yield field_errors.required(f"{path}.verbs", "verbs must contain at least one value")
    if rule.get("nonResourceURLs"):
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            yield field_errors.invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], detail)
        return
    for field, item in (("apiGroups", "api group"), ("resources", "resource")):
        if not rule.get(field):
            yield field_errors.required(f"{path}.{field}", f"resource rules must supply at least one {item}")


def _default_binding(binding: Json) -> Json:
    set_if_empty(binding.setdefault("roleRef", {}), apiGroup=GROUP)
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            set_if_empty(subject, apiGroup=GROUP)
    return binding


def _validate_binding(binding: Json) -> Iterator[FieldError]:
    yield from _role_ref(binding["roleRef"], ("Role", "ClusterRole"))
    for i, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject(subject, f"subjects[{i}]")


def _validate_cluster_binding(binding: Json) -> Iterator[FieldError]:
    yield from _role_ref(binding["roleRef"], ("ClusterRole",))
    for i, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject(subject, f"subjects[{i}]")
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            yield field_errors.required(f"subjects[{i}].namespace")


def _role_ref(role: Json, kinds: tuple[str, ...]) -> Iterator[FieldError]:
    if role["apiGroup"] != GROUP:
        yield field_errors.not_supported("roleRef.apiGroup", role["apiGroup"], [GROUP])
    if role.get("kind") not in kinds:
        yield field_errors.not_supported("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield field_errors.required("roleRef.name")
    elif wrong := names.path_segment(role["name"]):
        yield field_errors.invalid("roleRef.name", role["name"], wrong)


def _subject(subject: Json, path: str) -> Iterator[FieldError]:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        yield field_errors.required(f"{path}.name")
    if kind not in SUBJECT_KINDS:
        yield field_errors.not_supported(f"{path}.kind", kind, SUBJECT_KINDS)
    elif kind == "ServiceAccount":
        if name and (wrong := names.subdomain(name)):
            yield field_errors.invalid(f"{path}.name", name, wrong)
        if group:
            yield field_errors.not_supported(f"{path}.apiGroup", group, [""])
    elif group != GROUP:
        yield field_errors.not_supported(f"{path}.apiGroup", group, [GROUP])


def _validate_role_unchanged(new: Json, old: Json) -> Iterator[FieldError]:
    if new.get("roleRef") != old.get("roleRef"):
        yield field_errors.invalid("roleRef", new.get("roleRef"), "cannot change roleRef")


ROLES = Strategy(default=_default_role, validate=_validate_role, validate_name=names.path_segment)
CLUSTER_ROLES = Strategy(
    default=_default_role, validate=_validate_cluster_role, validate_name=names.path_segment
)
BINDINGS = Strategy(
    default=_default_binding,
    validate=_validate_binding,
    validate_update=_validate_role_unchanged,
    validate_name=names.path_segment,
)
CLUSTER_BINDINGS = Strategy(
    default=_default_binding,
    validate=_validate_cluster_binding,
    validate_update=_validate_role_unchanged,
    validate_name=names.path_segment,
)
