"""Strategic merge patches: merge patches that merge lists by the key in the schema.

Directives: ``$patch: replace|delete|merge`` in objects and list items, ``$retainKeys``, ``$deleteFromPrimitiveList/x``
and ``$setElementOrder/x``.

Source: apimachinery, pkg/util/strategicpatch/patch.go.
"""

from typing import Any

from rallypoint.local.apiserver.apimachinery.errors import StatusError, bad_request
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.schema.structural import Node

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
REMOVE_FROM = "$deleteFromPrimitiveList/"
ORDER = "$setElementOrder/"

ANY = Node()


def merge(node: Node, target: Any, patch: Any) -> Any:
    """Apply a patch; the result shares unchanged parts with the target."""
    if not isinstance(patch, dict):
        return patch
    match patch.get(DIRECTIVE):
        case "replace":
            return {name: value for name, value in patch.items() if name != DIRECTIVE}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise bad_request(f"unknown patch type found: {other}")
    result: Json = dict(target) if isinstance(target, dict) else {}
    if RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[RETAIN]}
    _remove_listed(result, patch)
    for name, value in patch.items():
        if not name.startswith("$"):
            _set(node.properties.get(name) or node.additional or ANY, result, name, value)
    before: Json = target if isinstance(target, dict) else {}
    for name, order in _orders(node, patch).items():
        if isinstance(result.get(name), list):
            result[name] = _ordered(
                node.properties.get(name, ANY), result[name], order, before.get(name) or []
            )
    return result


def _orders(node: Node, patch: Json) -> Json:
    """Return the order of each list: from ``$setElementOrder``, else the order of the items in the patch."""
    implicit = {
        name: value
        for name, value in patch.items()
        if isinstance(value, list) and not name.startswith("$") and "merge" in _merging(node, name)
    }
    explicit = {name.removeprefix(ORDER): value for name, value in patch.items() if name.startswith(ORDER)}
    return implicit | explicit


def _merging(node: Node, name: str) -> str:
    return node.properties.get(name, ANY).merge_strategy


def _set(node: Node, result: Json, name: str, value: Any) -> None:
    if value is None:
        result.pop(name, None)
    elif isinstance(value, list) and "merge" in node.merge_strategy:
        result[name] = _merge_list(node, result.get(name) or [], value)
    elif isinstance(value, list) or (isinstance(value, dict) and "replace" in node.merge_strategy.split(",")):
        result[name] = value
    else:
        result[name] = merge(node, result.get(name), value)


def _remove_listed(result: Json, patch: Json) -> None:
    for name, values in patch.items():
        if name.startswith(REMOVE_FROM):
            field = name.removeprefix(REMOVE_FROM)
            result[field] = [item for item in result.get(field, []) if item not in values]


def _merge_list(node: Node, target: list[Any], patch: list[Any]) -> list[Any]:
    if not node.merge_key:
        return [*target, *(item for item in patch if item not in target)]
    if any(_directive(item) == "replace" for item in patch):
        return [item for item in patch if _directive(item) != "replace"]
    result = list(target)
    for item in patch:
        if not isinstance(item, dict) or node.merge_key not in item:
            message = f"map: {item} does not contain declared merge key: {node.merge_key}"
            raise StatusError(500, "", message)
        _merge_item(node, result, item)
    return result


def _merge_item(node: Node, result: list[Any], item: Json) -> None:
    key = item[node.merge_key]
    positions = [
        i for i, old in enumerate(result) if isinstance(old, dict) and old.get(node.merge_key) == key
    ]
    if _directive(item) == "delete":
        result[:] = [old for i, old in enumerate(result) if i not in positions]
    elif positions:
        result[positions[0]] = merge(node.items or ANY, result[positions[0]], item)
    else:
        result.append(merge(node.items or ANY, {}, item))


def _directive(item: Any) -> str:
    return item.get(DIRECTIVE, "") if isinstance(item, dict) else ""


def _ordered(node: Node, items: list[Any], order: list[Any], before: list[Any]) -> list[Any]:
    """Order the items as the patch does; the others keep their place before the items that followed them."""

    def identity(item: Any) -> Any:
        return item.get(node.merge_key) if isinstance(item, dict) else item

    ordered_keys = [identity(entry) for entry in order]
    named = sorted(
        (item for item in items if identity(item) in ordered_keys),
        key=lambda item: ordered_keys.index(identity(item)),
    )
    others = [item for item in items if identity(item) not in ordered_keys]
    old_order = [identity(item) for item in before]
    result: list[Any] = []
    for item in named:
        while others and _stood_before(old_order, identity(others[0]), identity(item)):
            result.append(others.pop(0))
        result.append(item)
    return [*result, *others]


def _stood_before(old_order: list[Any], first: Any, second: Any) -> bool:
    return first in old_order and second in old_order and old_order.index(first) < old_order.index(second)
