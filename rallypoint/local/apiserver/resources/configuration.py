"""ConfigMaps and Secrets: defaults and validation.

Source: kubernetes, pkg/apis/core/validation/validation.go, pkg/registry/core/{configmap,secret}/strategy.go.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.resource import Strategy

LIMIT_BYTES = 2**20
REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""The required keys of each type of Secret."""


def _secret(secret: Json) -> Json:
    texts = secret.pop("stringData", None)
    if texts:
        encoded = {key: b64encode(value.encode()).decode() for key, value in texts.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}
    secret.setdefault("type", "Opaque")
    return secret


def _validate_config_map(config_map: Json) -> Iterator[FieldError]:
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    for key in data:
        yield from _validate_key("data", key)
        if key in binary:
            yield field_errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        yield from _validate_key("binaryData", key)
    if sum(len(text.encode()) for text in data.values()) + _size_bytes(binary) > LIMIT_BYTES:
        yield field_errors.too_long("[]", LIMIT_BYTES)


def _validate_secret(secret: Json) -> Iterator[FieldError]:
    data = secret.get("data") or {}
    for key in data:
        yield from _validate_key("data", key)
    if _size_bytes(data) > LIMIT_BYTES:
        yield field_errors.too_long("data", LIMIT_BYTES)
    for key in REQUIRED_KEYS.get(secret.get("type", ""), ()):
        if key not in data:
            yield field_errors.required(f"data[{key}]")


def _validate_key(field: str, key: str) -> Iterator[FieldError]:
    if wrong := names.config_key(key):
        yield field_errors.invalid(f"{field}[{key}]", key, wrong)


def _size_bytes(encoded: dict[str, str]) -> int:
    return sum(len(b64decode(text)) for text in encoded.values())


def _validate_immutable(new: Json, old: Json) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    for name in ("data", "binaryData"):
        if new.get(name) != old.get(name):
            yield field_errors.forbidden(name, "field is immutable when `immutable` is set")
    if not new.get("immutable"):
        yield field_errors.forbidden("immutable", "field is immutable when `immutable` is set")


CONFIG_MAPS = Strategy(validate=_validate_config_map, validate_update=_validate_immutable)
SECRETS = Strategy(default=_secret, validate=_validate_secret, validate_update=_validate_immutable)
