"""The command line of the controller: ``python -m controller``, which ``rallypoint controller`` also calls.

Source: training-operator 1.9, cmd/training-operator.v1/main.go; mpi-operator 0.8, cmd/mpi-operator/app/options/options.go.
"""

import argparse
import asyncio
import gc
import os
import platform
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TextIO

import structlog
from typing_extensions import override

from controller import app
from controller.kind.options import InvalidOption, KindOptions, flags
from controller.kinds import ALL
from controller.kube.connect import NotConfigured, connect
from controller.kube.errors import NotLeading
from controller.runtime.lifecycle import NothingServed
from controller.server.http import NOWHERE, check_address, check_loopback
from controller.settings import FIELDS, Settings
from controller.telemetry import build, logs, stacks

log = structlog.get_logger()

INERT = {
    "webhook-server-port": "there is no webhook: the rules of the CRDs refuse invalid jobs at apply",
    "webhook-service-name": "there is no webhook",
    "webhook-secret-name": "there is no webhook",
    "zap-stacktrace-level": "unexpected exceptions are always logged with their traceback",
    "zap-time-encoding": "times are always RFC 3339",
    "controller-queue-rate-limit": "the queue has no rate limit; each job has its own back-off",
    "controller-queue-burst": "the queue has no rate limit; each job has its own back-off",
    "alsologtostderr": "the log always goes to stderr",
    "logtostderr": "the log always goes to stderr",
    "stderrthreshold": "the log always goes to stderr; --log-level selects its lines",
    "log_dir": "the log always goes to stderr",
    "log_file": "the log always goes to stderr",
    "log_file_max_size": "the log always goes to stderr",
    "log_backtrace_at": "SIGUSR1 dumps the stacks",
    "vmodule": "--log-level applies to all modules",
    "add_dir_header": "lines name no source file",
    "skip_headers": "lines are JSON",
    "skip_log_headers": "the log always goes to stderr",
    "one_output": "the log always goes to stderr",
}
"""Flags of the originals that are accepted so that manifests need no change, and why they have no effect.

Source: training-operator 1.9, cmd/training-operator.v1/main.go; mpi-operator 0.8, cmd/mpi-operator/app/options/options.go, and those of
klog, which its manifest uses.
"""

DEBUG_VERBOSITY = 4
"""The verbosity from which on klog's lines are for debugging; clusters usually run with 2. Source: Kubernetes, sig-instrumentation, logging.md."""

SWITCHES = frozenset(
    {
        "alsologtostderr",
        "logtostderr",
        "add_dir_header",
        "skip_headers",
        "skip_log_headers",
        "one_output",
    }
)
"""Those of them that need no value."""


def main(arguments: Sequence[str], prog: str = "python -m controller") -> int:
    """Parse the flags, run the controller until it is stopped, and return the exit status of ``execute``.

    Args:
        arguments: the flags, without the program's name.
        prog: the program's name in usage and error messages.
    """
    return execute(build_parser(prog).parse_args(with_two_dashes(arguments)), prog)


def build_parser(prog: str = "python -m controller") -> argparse.ArgumentParser:
    """Return the parser of the controller's flags."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} [flags]",
        description="Run the controller.",
        allow_abbrev=False,
        formatter_class=_Help,
    )
    defaults = Settings()
    flag = parser.add_argument
    flag(
        "--version",
        action=_Version,
        nargs="?",
        const=True,
        type=_boolean,
        help="print version and commit, and exit",
    )
    flag(
        "--kubeconfig",
        "--kubeConfig",
        default="",
        metavar="FILE",
        help="kubeconfig file; default: $KUBECONFIG, or the ServiceAccount of the pod",
    )
    flag(
        "--master",
        default="",
        metavar="URL",
        help="address of the API server; overrides the kubeconfig's; default: that of the kubeconfig",
    )
    flag(
        "--namespace",
        default=os.environ.get("KUBEFLOW_NAMESPACE", ""),
        help="serve only this namespace; default: $KUBEFLOW_NAMESPACE, or all namespaces",
    )
    flag(
        "--enable-scheme",
        action="append",
        metavar="KIND",
        help="serve only this kind; repeatable; default: the kinds of the default installation",
    )
    flag(
        "--controller-threads",
        "--threadiness",
        type=int,
        default=defaults.controller_threads,
        help="maximum number of jobs of one kind that are reconciled at the same time",
    )
    flag(
        "--kube-api-qps",
        type=float,
        default=defaults.kube_api_qps,
        help="average number of requests per second to the API server; 0 means no limit",
    )
    flag(
        "--kube-api-burst",
        type=int,
        default=defaults.kube_api_burst,
        help="burst of requests above --kube-api-qps",
    )
    flag(
        "--kube-api-in-flight",
        type=int,
        default=defaults.kube_api_in_flight,
        help="maximum number of concurrent requests to the API server, not counting watches",
    )
    flag(
        "--metrics-bind-address",
        default=defaults.metrics_bind_address,
        help="host:port of /metrics; 0 disables it",
    )
    flag(
        "--monitoring-port",
        dest="metrics_bind_address",
        type=_address_of_port,
        default=argparse.SUPPRESS,
        metavar="PORT",
        help="port of /metrics, as --metrics-bind-address=:PORT; 0 disables it",
    )
    _switch(
        flag,
        "--metrics-secure",
        defaults.metrics_secure,
        "serve /metrics over TLS, and only to clients whose bearer token the API server authorizes to get /metrics",
    )
    flag(
        "--metrics-cert-path",
        default=defaults.metrics_cert_path,
        metavar="FOLDER",
        help="folder with the certificate of /metrics, which is read again when it changes; default: a self-signed certificate in memory",
    )
    flag(
        "--metrics-cert-name",
        default=defaults.metrics_cert_name,
        metavar="FILE",
        help="file of the certificate in --metrics-cert-path",
    )
    flag(
        "--metrics-cert-key",
        default=defaults.metrics_cert_key,
        metavar="FILE",
        help="file of the private key in --metrics-cert-path",
    )
    flag(
        "--metrics-token-audiences",
        type=_list,
        default=defaults.metrics_token_audiences,
        metavar="AUDIENCE,...",
        help="accepted token audiences with --metrics-secure; a client's token must have at least one of them; default: that of the API server",
    )
    flag(
        "--health-probe-bind-address",
        default=defaults.health_probe_bind_address,
        help="host:port of /healthz and /readyz; 0 disables them",
    )
    flag(
        "--pprof-bind-address",
        default=defaults.pprof_bind_address,
        help="host:port of /debug/pprof/ on loopback, such as 127.0.0.1:6060: stacks, memory, garbage collection; 0 disables it",
    )
    _switch(
        flag,
        "--tracing",
        defaults.tracing,
        "export a trace of each reconcile with OpenTelemetry, configured by the OTEL_* variables; needs rallypoint-operator[tracing]",
    )
    _switch(
        flag, "--leader-elect", defaults.leader_elect, "reconcile only while this process holds the Lease"
    )
    flag("--leader-election-id", default=defaults.leader_election_id, help="name of the Lease")
    flag(
        "--leader-election-namespace",
        default=defaults.leader_election_namespace,
        help="namespace of the Lease; default: the namespace of the pod or of the kubeconfig's context",
    )
    flag(
        "--lock-namespace",
        default=defaults.lock_namespace,
        help="namespace of the Lease mpi-operator, which is also required if MPIJobs are served; default: namespace of the leader election Lease",
    )
    _switch(
        flag,
        "--shadow",
        defaults.shadow,
        "compare this operator's decisions with those of the running operator, and write nothing",
    )
    flag(
        "--gang-scheduler-name",
        "--gang-scheduling",
        default=defaults.gang_scheduler_name,
        help="gang-schedule the pods of each job: kubernetes, volcano, yunikorn, or the name of a scheduler with coscheduling",
    )
    _switch(
        flag,
        "--kueue",
        defaults.kueue,
        "queue jobs with Kueue, except those of kinds that Kueue's own integrations manage",
    )
    flag("--events", default=defaults.events, help="events to record: full, compact or off")
    flag(
        "--cluster-domain",
        default=os.environ.get("CUSTOM_CLUSTER_DOMAIN", ""),
        help="domain after .svc in the DNS names of Services; default: $CUSTOM_CLUSTER_DOMAIN",
    )
    flag(
        "--services",
        default=defaults.services,
        help="Services of a job: per-replica, addressed (only replicas that the others' environment names) or per-job",
    )
    _switch(
        flag,
        "--clean-finished-pods",
        defaults.clean_finished_pods,
        "delete pods that still run when their job has failed, if the job has no cleanPodPolicy",
    )
    flag("--max-replicas", type=int, default=defaults.max_replicas, help="maximum number of pods of one job")
    flag(
        "--log-format",
        "--zap-encoder",
        dest="log_format",
        default=None,
        help="json or console; default: json",
    )
    flag(
        "--log-level",
        "--zap-log-level",
        dest="log_level",
        type=_level,
        default=defaults.log_level,
        help="debug, info, warning or error; a number means debug; SIGUSR2 toggles debug",
    )
    flag(
        "-v",
        "--v",
        dest="log_level",
        type=_verbosity,
        default=argparse.SUPPRESS,
        metavar="NUMBER",
        help="verbosity of klog: below 4 means info, 4 and more mean debug",
    )
    _switch(flag, "--zap-devel", False, "log in the format console, unless --log-format is set")
    for kind in ALL:
        if kind.options:
            group = parser.add_argument_group(f"options of {kind.resource.kind}")
            _add_kind_options(group.add_argument, kind.options)
    group = parser.add_argument_group("accepted for compatibility, without effect")
    for name, reason in INERT.items():
        value: dict[str, Any] = {"nargs": "?", "const": True} if name in SWITCHES else {}
        group.add_argument(f"--{name}", default=None, metavar="VALUE", help=reason, **value)
    return parser


def execute(args: argparse.Namespace, prog: str) -> int:
    """Run the controller with parsed flags.

    Returns:
        The exit status: 0 after a stop by a signal, 1 if the controller could not start or lost its Lease, 2 for invalid flags.
    """
    try:
        settings = settings_from(args)
        app.kinds_named(settings.enable_scheme)
        for address in (settings.metrics_bind_address, settings.health_probe_bind_address):
            check_address(address)
        check_loopback("--pprof-bind-address", settings.pprof_bind_address)
    except ValueError as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 2
    logs.configure(settings.log_format, settings.log_level)
    logs.catch_all()
    log_start(settings)
    for name, reason in INERT.items():
        if getattr(args, name.replace("-", "_")) is not None:
            log.warning("flag has no effect", flag=f"--{name}", reason=reason)
    try:
        return loop_factory()(_serve(settings))
    except (NotConfigured, InvalidOption, app.NoNamespace, app.NoTracing, OSError) as error:
        log.error("controller cannot start", error=str(error))
    except NotLeading as error:
        # Exit immediately and restart as a standby, because running reconciles rely on being the only ones.
        log.error("leader election lost, exiting", error=str(error))
    except NothingServed as error:
        # Restart as a standby that waits until a kind is served, and does not hold the Leases until then.
        log.error("no kind is served, exiting", error=str(error))
    return 1


def log_start(settings: Settings) -> None:
    """Log the first line: version, commit, served kinds and settings."""
    log.info(
        "controller starting",
        version=build.operator_version(),
        commit=build.operator_commit(),
        python=platform.python_version(),
        kinds=[kind.resource.kind for kind in app.kinds_named(settings.enable_scheme)],
        settings=_values_by_flag(settings),
    )


def handle_debug_signals(stream: TextIO) -> None:
    """Dump all stacks at SIGUSR1, and log at debug and back at SIGUSR2. Call it in the event loop; ``stream`` must be a file."""
    stacks.dump_on(signal.SIGUSR1, stream)
    # A signal needs no port, no file and no right of its own: whoever may run a command in the pod may send it. The paths of other
    # components for this, such as /debug/flags/v, would be open to whoever reaches the port, because the ports have no authentication.
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, logs.toggle_debug)


def settings_from(args: argparse.Namespace) -> Settings:
    """Return the settings of parsed flags.

    Raises:
        ValueError: a value is out of range.
    """
    values = {name: getattr(args, name) for name in FIELDS if name in args}
    values["enable_scheme"] = tuple(args.enable_scheme or ())
    values["of_kinds"] = tuple(_kind_options(args, kind.options) for kind in ALL if kind.options)
    values["log_format"] = args.log_format or ("console" if args.zap_devel else "json")
    return Settings(**values)


async def _serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT, then hand over; a second signal stops immediately. Return the exit status."""
    stop = asyncio.Event()
    work = asyncio.ensure_future(_run(settings, stop))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _end, work, stop)
    handle_debug_signals(sys.stderr)
    try:
        await work
    except asyncio.CancelledError:
        log.warning("stopped immediately")
        return 1
    log.info("stopped")
    return 0


async def _run(settings: Settings, stop: asyncio.Event) -> None:
    connection = await connect(settings.kubeconfig, settings.master)
    await app.run(settings, connection, stop=stop, on_ready=spare_garbage_collector)


def spare_garbage_collector() -> None:
    """Reduce the CPU time of garbage collection, which would also delay everything else.

    Objects that exist when the caches are filled stay forever, so the collector skips them; each full collection took 37 ms before, and
    almost nothing after. Higher thresholds collect the garbage of a burst in larger batches; with Python's thresholds it took 7 % of the CPU.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _end(work: "asyncio.Task[None]", stop: asyncio.Event) -> None:
    if stop.is_set():
        work.cancel()
        return
    log.info("stopping")
    stop.set()


def loop_factory() -> Callable[[Coroutine[Any, Any, int]], int]:
    """Return the runner of the event loop: uvloop's if it is installed, otherwise ``asyncio.run``."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _values_by_flag(settings: Settings) -> dict[str, Any]:
    """Return the value of each flag; those of kinds included."""
    values = {name.replace("_", "-"): getattr(settings, name) for name in FIELDS if name != "of_kinds"}
    for options in settings.of_kinds:
        values |= {
            flag.name.removeprefix("--"): getattr(options, flag.attribute) for flag in flags(type(options))
        }
    return values


def with_two_dashes(arguments: Sequence[str]) -> list[str]:
    """Replace ``-leader-elect=false`` by ``--leader-elect=false``: Go's flag package accepts both, so manifests may contain either."""
    return [
        f"-{argument}" if re.match(r"-[a-z][a-zA-Z_-]+|-v=", argument) else argument for argument in arguments
    ]


def _add_kind_options(add: Callable[..., object], options: type[KindOptions]) -> None:
    for flag in flags(options):
        if flag.on_off:
            default = "on" if flag.default else "off"
            add(flag.name, default=default, choices=("on", "off"), help=flag.help)
        elif isinstance(flag.default, bool):
            _switch(add, flag.name, flag.default, flag.help)
        else:
            add(
                flag.name, type=type(flag.default), default=flag.default, metavar=flag.metavar, help=flag.help
            )


def _kind_options(args: argparse.Namespace, options: type[KindOptions]) -> KindOptions:
    """Return the options of one kind from parsed flags.

    Raises:
        ValueError: a value is out of range.
    """
    given = {flag: getattr(args, flag.name.removeprefix("--").replace("-", "_")) for flag in flags(options)}
    return options(
        **{flag.attribute: value == "on" if flag.on_off else value for flag, value in given.items()}
    )


def _switch(add: Callable[..., object], name: str, default: bool, help_: str) -> None:
    """Add a boolean flag with the syntax of Go: ``--name``, ``--name=true``, ``--name=false``."""
    add(name, nargs="?", const=True, default=default, type=_boolean, help=help_)


def _level(text: str) -> str:
    """Map a level of Go's zap: numbers increase the verbosity, and the controller logs nothing above error."""
    return "debug" if text.isdecimal() else {"panic": "error"}.get(text, text)


def _verbosity(text: str) -> str:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return "debug" if int(text) >= DEBUG_VERBOSITY else "info"


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _address_of_port(text: str) -> str:
    """Return the bind address for mpi-operator's ``--monitoring-port``."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return NOWHERE if text == "0" else f":{text}"


def help_text(action: argparse.Action) -> str:
    """Return the help of a flag, which ends with ``; default: …`` if the flag has a default. Percent signs are doubled, as argparse needs it."""
    text, default = action.help or "", action.default
    if default is None or default == argparse.SUPPRESS or "default:" in text:
        return text
    if isinstance(default, bool):
        return f"{text}; default: {str(default).lower()}"
    if isinstance(default, float):
        return f"{text}; default: {default:g}"
    return f"{text}; default: {default or 'none'}".replace("%", "%%")


class _Help(argparse.HelpFormatter):
    """Adds the default to each flag that has one and does not describe it."""

    @override
    def _get_help_string(self, action: argparse.Action) -> str:
        return help_text(action)


class _Version(argparse.Action):
    """Prints version and commit. It asks for the commit only then, which takes a process in a checkout."""

    @override
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option: str | None = None
    ) -> None:
        if values:
            sys.stdout.write(f"{build.version_text()}\n")
            parser.exit()


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "t", "1"}:
        return True
    if text.lower() in {"false", "f", "0"}:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
