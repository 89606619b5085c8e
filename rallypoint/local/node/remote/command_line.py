"""The command lines of ``ssh`` and ``kubectl exec``, as programs write them that start others in other pods. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SHELL = "/bin/sh"
SSH_FAILED = 255
KUBECTL_FAILED = 1
KUBECTL_ATTEMPTS = 10

_SSH_VALUES = frozenset("BbcEeFIiJlmopS")
"""Options of ssh that have a value and change nothing here."""
_SSH_REFUSED = frozenset("DfGLNOQRsWw")
"""Options of ssh that mean something else than to run a command and wait for it."""
_KUBECTL_VALUES = ("-n", "--namespace", "-c", "--container", "--pod-running-timeout", "--kubeconfig")


class Unusable(Exception):
    """There is no sense in the command line, or one that only the real tool has. The text is for people."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is to be run, and where."""

    host: str
    command: Sequence[str]
    namespace: str = ""
    """Empty: the caller's."""
    container: str = ""
    """Empty: the pod's default."""
    has_input: bool = True
    attempts: int = 1
    """How often a pod that does not run is tried."""


def ssh(words: Sequence[str]) -> Call:
    """Read as OpenSSH reads it: options stand before and behind the host, the rest is one line for a shell.

    Raises:
        Unusable: no host, or an option that cannot be had.
    """
    options: dict[str, list[str]] = {}
    rest = _ssh_options(words, options)
    if not rest:
        raise Unusable("usage: ssh [options] [user@]host [command]")
    host, rest = rest[0].rpartition("@")[2], _ssh_options(rest[1:], options)
    settings = [value.replace("=", " ", 1).split(None, 1) for value in options.get("o", ())]
    attempts = [pair[1] for pair in settings if len(pair) == 2 and pair[0].lower() == "connectionattempts"]
    return Call(
        host.removeprefix("ssh://"),
        (SHELL, "-c", " ".join(rest)) if rest else (SHELL,),
        has_input="n" not in options,
        attempts=int(attempts[0]) if attempts and attempts[0].isdigit() else 1,
    )


def _ssh_options(words: Sequence[str], found: dict[str, list[str]]) -> Sequence[str]:
    """What follows the options."""
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        position += 1
        if word == "--":
            break
        for index, letter in enumerate(word[1:], 2):
            if letter in _SSH_REFUSED:
                raise Unusable(f"ssh: option -{letter} is not available in local mode")
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
    """Read ``exec [options] POD [options] -- COMMAND``.

    Raises:
        Unusable: it is anything else.
    """
    before, command = _halves(list(words))
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
        raise Unusable("error: in local mode the kubectl of a pod knows exec alone")
    if len(names) != 2 or not command:
        raise Unusable("error: you must specify a pod and, behind --, a command")
    return Call(
        names[1].removeprefix("pods/").removeprefix("pod/"),
        command,
        namespace=values.get("n", ""),
        container=values.get("c", ""),
        has_input=bool(flags & {"i", "--stdin"}),
        attempts=KUBECTL_ATTEMPTS,
    )


def _halves(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


READERS: Mapping[str, Callable[[Sequence[str]], Call]] = {"ssh": ssh, "kubectl": kubectl}
FAILED: Mapping[str, int] = {"ssh": SSH_FAILED, "kubectl": KUBECTL_FAILED}
"""The exit status of each tool when the command has not run."""
