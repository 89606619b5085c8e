"""Validation of names, label keys and label values.

Each function returns an error message, or "" for a valid value.

Source: apimachinery, pkg/util/validation/validation.go.
"""

import ipaddress
import random
import re

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
PORT = re.compile(r"[-a-z0-9]+")
HEADER = re.compile(r"[-A-Za-z0-9]+")
SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
INVALID_IP_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated suffixes; without vowels they spell no words."""

LONGEST_BASE = 58


def generate(base: str, rng: random.Random) -> str:
    """Generate a name from ``generateName``."""
    return base[:LONGEST_BASE] + "".join(rng.choices(SUFFIX, k=5))


def subdomain(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    if SUBDOMAIN.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def label(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if LABEL.fullmatch(name):
        return ""
    if SUBDOMAIN.fullmatch(name):
        return "must not contain dots"
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )


def path_segment(name: str) -> str:
    """Validate the name of a role or a role binding: any segment of a URL path."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{char}'" for char in "/%" if char in name), "")


def qualified(name: str) -> str:
    """Validate a label key, an annotation key or a finalizer: an optional prefix and a name."""
    prefix, slash, rest = name.rpartition("/")
    if slash and (not prefix or "/" in prefix):
        return (
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
            "an alphanumeric character with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash and (wrong := subdomain(prefix)):
        return f"prefix part {wrong}"
    if not rest:
        return "name part must be non-empty"
    if len(rest) > 63:
        return "name part must be no more than 63 bytes"
    if QUALIFIED.fullmatch(rest):
        return ""
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )


def label_value(value: str) -> str:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    if VALUE.fullmatch(value):
        return ""
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
        "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    )


def ip_address(text: str) -> str:
    """Validate an IPv4 or IPv6 address without a zone."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return INVALID_IP_ADDRESS
    return INVALID_IP_ADDRESS if "%" in text else ""


def header(name: str) -> str:
    """Validate the name of an HTTP header."""
    if HEADER.fullmatch(name):
        return ""
    return (
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
        "validation is '[-A-Za-z0-9]+')"
    )


def sysctl(name: str) -> str:
    """Validate the name of a kernel parameter."""
    if len(name) <= 253 and SYSCTL.fullmatch(name):
        return ""
    return f"must have at most 253 characters and match regex ^{SYSCTL.pattern}$"


def port_number(number: int) -> str:
    return "" if 0 < number < 65536 else "must be between 1 and 65535, inclusive"


def port(name: str | int) -> str:
    """Validate a port by its number or its name (IANA service name)."""
    if isinstance(name, int):
        return port_number(name)
    if len(name) > 15:
        return "must be no more than 15 characters"
    if not PORT.fullmatch(name):
        return "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not any(char.isalpha() for char in name):
        return "must contain at least one letter (a-z)"
    if "--" in name:
        return "must not contain consecutive hyphens"
    return "must not begin or end with a hyphen" if name[0] == "-" or name[-1] == "-" else ""


def environment(name: str) -> str:
    """Validate the name of an environment variable: printable ASCII without ``=``."""
    if not name or any(not " " <= char <= "~" or char == "=" for char in name):
        return (
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        )
    return ""


def config_key(name: str) -> str:
    """Validate a key of a ConfigMap or Secret, which becomes a file name."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if not CONFIG_KEY.fullmatch(name):
        return (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    if name in (".", ".."):
        return f"must not be '{name}'"
    return "must not start with '..'" if name.startswith("..") else ""


def inner_path(path: str) -> str:
    """Validate a relative path that stays below its start."""
    if path.startswith("/"):
        return "must be a relative path"
    return "must not contain '..'" if ".." in path.split("/") else ""


def file_path(path: str) -> str:
    """Validate the path of a file in a projected volume; ``..`` names are reserved for atomic updates."""
    return inner_path(path) or ("must not start with '..'" if path.startswith("..") else "")
