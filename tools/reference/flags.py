"""The page of flags: all of them with their defaults, and what differs from the Go operators."""

import argparse
from collections.abc import Iterator, Mapping

from controller.command import INERT, build_parser, help_text
from tools.markdown import cell, code, table

HEAD = """\
# Flags of the operator

<!-- Made by `make docs` from controller/command.py, controller/settings.py and the options of the kinds, and from tools/reference/flags.py; edit those instead. -->

`rallypoint controller --help` and `python -m controller --help` list all flags with their defaults; `--version` prints version and commit. The operator accepts every flag of training-operator 1.9 and of mpi-operator 0.8 under its name, with one dash or two: see [flags of mpi-operator](../how-to/upgrade-from-mpi-operator.md#flags).

There is no configuration file: flags, and the [environment variables](labels.md#environment-variables-of-the-operator) that replace some of them, are all settings. They are read once, at the start. An invalid value ends the process with exit status 2 and a message that names the flag. The first line of the log contains all values.
"""

NOTES: Mapping[str, str] = {
    "--kubeconfig": "`HTTPS_PROXY` and `NO_PROXY` apply to connections by a kubeconfig or `--master`, as in client-go. Unlike there, a pod "
    "that connects with its ServiceAccount ignores them",
    "--master": "Without a kubeconfig, it connects without credentials",
    "--enable-scheme": "In any case, `PyTorchJob` or `pytorchjob`. The default installation does not include [MXJob](mxjob.md)",
    "--shadow": "[Shadow mode](../how-to/shadow.md)",
    "--metrics-secure": "[Protect the metrics](../how-to/secure-metrics.md). The name is kubebuilder's",
    "--metrics-cert-path": "[A certificate that Prometheus verifies](../how-to/secure-metrics.md#a-certificate-that-prometheus-verifies)",
    "--metrics-token-audiences": "[Tokens for the metrics alone](../how-to/secure-metrics.md#tokens-for-the-metrics-alone)",
    "--pprof-bind-address": "[Stacks, memory and garbage collection](../how-to/profile-and-trace.md#stacks-memory-and-garbage-collection). The name is "
    "controller-runtime's, the reports are Python's",
    "--tracing": "[Traces](../how-to/profile-and-trace.md#traces)",
    "--gang-scheduler-name": "[Gang scheduling](../how-to/gang-scheduling.md)",
    "--kueue": "[Queue jobs with Kueue](../how-to/kueue.md#by-this-operator)",
    "--events": "[Events](events.md)",
    "--services": "[Services of jobs](../how-to/services.md)",
    "--cluster-domain": "In the addresses of `TF_CONFIG` and of MPI's hosts, such as `cluster.local`",
    "--log-level": "[The log](../how-to/runbook.md#the-log). SIGUSR1 dumps all stacks",
    "--lock-namespace": "While an mpi-operator runs with that Lease, this operator stands by",
    "--leader-election-id": "The default is training-operator's, so that the two never work at the same time",
    "--pytorch-init-container": "[The wait for the master](pytorchjob.md#the-wait-for-the-master)",
    "--mpi-wait-for-workers": "[When the launcher starts](mpijob.md#when-the-launcher-starts)",
    "--mpi-ssh-check": "[When the launcher starts](mpijob.md#when-the-launcher-starts)",
    "--mpi-launcher-only-key": "[Keys](mpijob.md#keys)",
    "--mpi-topology-label": "[Order of hosts](mpijob.md#order-of-hosts)",
}
"""What the help has no room for, by flag."""

DIFFERENCES = """
## Differences from training-operator

Defaults that differ:

| flag | training-operator | here | note |
|---|---|---|---|
| `--kube-api-qps`, `--kube-api-burst` | 20, 30 | 0 (no limit), 30 | `--kube-api-in-flight` limits the requests at once |
| `--controller-threads` | 1 | 16 | jobs of a kind reconciled at once |
| `--leader-elect` | false | false; the shipped Deployment sets true | |
| `--zap-*` | console, debug | JSON, info | `--zap-devel` or `--log-format=console` for people |

Flags that behave differently:

- The flags about the webhook have no effect, because there is no webhook; see [flags without effect](#flags-without-effect). The log warns of each that is set.
- `--enable-scheme` names the kinds to serve, once per kind. Without it the operator serves the kinds of the default installation.
- `--gang-scheduler-name` does not end the process if the PodGroup definition is missing ([gang scheduling](../how-to/gang-scheduling.md)).

Flags that training-operator does not have: `--kube-api-in-flight`, `--events`, `--leader-election-namespace` (training-operator can use only the pod's own), `--lock-namespace`, `--cluster-domain` (training-operator reads `$CUSTOM_CLUSTER_DOMAIN` for TFJobs), `--pytorch-init-container`, `--max-replicas`, `--services`, `--clean-finished-pods`, `--kueue`, `--metrics-secure` and the flags for its certificate and tokens, `--pprof-bind-address`, `--shadow`, `--tracing`, `--log-format`, `--log-level`, and those for MPIJobs except `--mpi-kubectl-delivery-image`.

Flags of mpi-operator that training-operator does not have: `--threadiness` (`--controller-threads`), `--monitoring-port` (`--metrics-bind-address`), `--kubeConfig` (`--kubeconfig`), `--master`, `-v` (4 and more: debug), `--gang-scheduling` (`--gang-scheduler-name`).

[Decision 9](../decisions/0009-flags.md) gives the reasons for the defaults.
"""

_SWITCH = "?"
"""The ``nargs`` of a boolean flag: without a value it is true."""


def page() -> str:
    parser = build_parser()
    inert = {f"--{name}" for name in INERT}
    sections: list[str] = []
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no public list of its flags
        actions = [action for action in group._group_actions if inert.isdisjoint(action.option_strings)]  # noqa: SLF001 - the same
        if actions:
            title = (group.title or "").removeprefix("options of ")
            sections += _section("All kinds" if title == "options" else title, actions)
    return "".join((HEAD, *sections, *_inert(), DIFFERENCES))


def _section(title: str, actions: list[argparse.Action]) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield from table(("flag", "value", "default", "meaning"), map(_row, actions))


def _row(action: argparse.Action) -> tuple[str, str, str, str]:
    text, _, default = help_text(action).replace("%%", "%").partition("; default: ")
    notes = [NOTES[name] for name in action.option_strings if name in NOTES]
    meaning = ". ".join((cell(text), *notes)) if notes else cell(text)
    return code(*action.option_strings), _value(action), _default(action, default), meaning


def _default(action: argparse.Action, described: str) -> str:
    """Return the default as code, or as words if the help describes it."""
    is_described = "; default: " in (action.help or "")
    return cell(described) if is_described or described in {"", "none"} else code(described)


def _value(action: argparse.Action) -> str:
    if action.choices:
        return code(*action.choices)
    if action.nargs == _SWITCH:
        return code("true", "false")
    if action.nargs == 0:
        return ""
    if action.type in (int, float):
        return "integer" if action.type is int else "number"
    return str(action.metavar or "text").lower()


def _inert() -> Iterator[str]:
    yield "\n## Flags without effect\n\nThe operator accepts them, so that manifests of the Go operators need no change.\n"
    yield from table(("flag", "why"), ((code(f"--{name}"), cell(reason)) for name, reason in INERT.items()))
