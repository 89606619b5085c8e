"""Parses the command lines of ``ssh`` and ``kubectl exec`` with which programs start processes in other pods. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SHELL = "/bin/sh"
SSH_FAILED = 255
KUBECTL_FAILED = 1
KUBECTL_ATTEMPTS = 10

_SSH_VALUES = frozenset("BbcEeFIiJlmopS")
"""Options of ssh with a value that local mode ignores."""
_SSH_REFUSED = frozenset("DfGLNOQRsWw")
"""Options of ssh that do more than run a command and wait for it."""
_KUBECTL_VALUES = ("-n", "--namespace", "-c", "--container", "--pod-running-timeout", "--kubeconfig")


class UnsupportedCommandLine(Exception):
    """The command line is invalid or not supported. The text says why."""


@dataclass(frozen=True, slots=True)
class Call:
    host: str
    command: Sequence[str]
    namespace: str = ""
    """Empty for the caller's namespace."""
    container: str = ""
    """Empty for the pod's default container."""
    has_input: bool = True
    attempts: int = 1
    """The number of attempts while the pod does not run."""


def ssh(words: Sequence[str]) -> Call:
    """Parse as OpenSSH does: options precede and follow the host, the rest is one shell command line.

    Raises:
        UnsupportedCommandLine: the host is missing, or an option is not supported.
    """
    options: dict[str, list[str]] = {}
    rest = _ssh_options(words, options)
    if not rest:
        raise UnsupportedCommandLine("usage: ssh [options] [user@]host [command]")
    host, rest = rest[0].rpartition("@")[2], _ssh_options(rest[1:], options)
    settings = [value.replace("=", " ", 1).split(None, 1) for value in options.get("o", ())]
    attempts = [pair[1] for pair in settings if len(pair) == 2 and pair[0].lower() == "connectionattempts"]
    return Call(
        host.removeprefix("ssh://"),
        (SHELL, "-c", " ".join(rest)) if rest else (SHELL,),
        has_input="n" not in options,
        attempts=int(attempts[0]) if attempts and attempts[0].isdecimal() else 1,
    )


def _ssh_options(words: Sequence[str], found: dict[str, list[str]]) -> Sequence[str]:
    """Collect the options and return the words after them."""
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        position += 1
        if word == "--":
            break
        for index, letter in enumerate(word[1:], 2):
            if letter in _SSH_REFUSED:
                raise UnsupportedCommandLine(f"ssh: option -{letter} is not available in local mode")
            if letter not in _SSH_VALUES:
                found[letter] = []
                continue
            value = word[index:]
            if not value:
                value, position = words[position] if position < len(words) else "", position + 1
            found.setdefault(letter, []).append(value)
            break
    return words[position:]


def kubectl(words: Sequence[str]) -> Call:
    """Parse ``exec [options] POD [options] -- COMMAND``.

    Raises:
        UnsupportedCommandLine: it is another command.
    """
    before, command = _split_at_separator(list(words))
    values: dict[str, str] = {}
    flags: set[str] = set()
    names: list[str] = []
    rest = iter(before)
    for word in rest:
        name, given, value = word.partition("=")
        if not word.startswith("-"):
            names.append(word)
        elif name in _KUBECTL_VALUES:
            values[name.lstrip("-")[0]] = value if given else next(rest, "")
        elif not word.startswith("--"):
            flags |= set(word[1:])
        elif value != "false":
            flags.add(name)
    if names[:1] != ["exec"]:
        raise UnsupportedCommandLine("error: in local mode kubectl in a pod supports only exec")
    if len(names) != 2 or not command:
        raise UnsupportedCommandLine("error: you must specify a pod and, after --, a command")
    return Call(
        names[1].removeprefix("pods/").removeprefix("pod/"),
        command,
        namespace=values.get("n", ""),
        container=values.get("c", ""),
        has_input=bool(flags & {"i", "--stdin"}),
        attempts=KUBECTL_ATTEMPTS,
    )


def _split_at_separator(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


PARSERS: Mapping[str, Callable[[Sequence[str]], Call]] = {"ssh": ssh, "kubectl": kubectl}
FAILURE_EXIT_CODES: Mapping[str, int] = {"ssh": SSH_FAILED, "kubectl": KUBECTL_FAILED}
"""The exit status of each tool if the command does not run."""
