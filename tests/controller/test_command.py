"""The command line of the controller: flags, exit statuses, log lines and shutdown."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.meta import EVENTS, LEASES, PODS
from api.v1.pytorchjob import RESOURCE
from controller import command
from controller.kind.options import find
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.pytorch.options import PyTorchOptions
from controller.kube.client import Client
from controller.settings import Settings
from controller.telemetry import build
from controller.telemetry.metrics import shadow
from controller.telemetry.metrics.families import GROUPS
from rallypoint.cli import main
from tests.support.faults import Delay, Refuse, Rule
from tests.support.harness import Harness, start_harness


def parsed(*flags: str) -> Settings:
    return command.settings_from(command.build_parser().parse_args(flags))


@pytest.mark.parametrize(
    ("flag", "setting", "value"),
    [
        ("--metrics-bind-address=:9090", "metrics_bind_address", ":9090"),
        ("--health-probe-bind-address=:9091", "health_probe_bind_address", ":9091"),
        ("--pprof-bind-address=127.0.0.1:6060", "pprof_bind_address", "127.0.0.1:6060"),
        ("--metrics-secure", "metrics_secure", True),
        ("--metrics-secure=false", "metrics_secure", False),
        ("--metrics-cert-name=a.crt", "metrics_cert_name", "a.crt"),
        ("--metrics-cert-key=a.key", "metrics_cert_key", "a.key"),
        ("--kueue", "kueue", True),
        ("--tracing", "tracing", True),
        ("--tracing=true", "tracing", True),
        ("--leader-elect=false", "leader_elect", False),
        ("--leader-elect=0", "leader_elect", False),
        ("--leader-elect", "leader_elect", True),
        ("--leader-elect=true", "leader_elect", True),
        ("--leader-election-id=other", "leader_election_id", "other"),
        ("--leader-election-namespace=team", "leader_election_namespace", "team"),
        ("--lock-namespace=mpi-operator", "lock_namespace", "mpi-operator"),
        ("--enable-scheme=pytorchjob", "enable_scheme", ("pytorchjob",)),
        ("--gang-scheduler-name=", "gang_scheduler_name", ""),
        ("--gang-scheduler-name=Volcano", "gang_scheduler_name", "Volcano"),
        ("--namespace=team", "namespace", "team"),
        ("--controller-threads=4", "controller_threads", 4),
        ("--kube-api-qps=20", "kube_api_qps", 20.0),
        ("--kube-api-burst=40", "kube_api_burst", 40),
        ("--kube-api-in-flight=8", "kube_api_in_flight", 8),
        ("--gang-scheduling=volcano", "gang_scheduler_name", "volcano"),
        ("--cluster-domain=cluster.local", "cluster_domain", "cluster.local"),
        ("--services=per-job", "services", "per-job"),
        ("--webhook-server-port=9443", "leader_elect", False),
        ("--webhook-service-name=a", "leader_elect", False),
        ("--webhook-secret-name=a", "leader_elect", False),
        ("--kubeconfig=/a", "kubeconfig", "/a"),
        ("--zap-devel", "log_format", "console"),
        ("--zap-devel=false", "log_format", "json"),
        ("--zap-encoder=console", "log_format", "console"),
        ("--zap-log-level=debug", "log_level", "debug"),
        ("--zap-log-level=5", "log_level", "debug"),
        ("--zap-log-level=panic", "log_level", "error"),
        ("--zap-stacktrace-level=panic", "leader_elect", False),
        ("--zap-time-encoding=rfc3339", "leader_elect", False),
        ("--max-replicas=5", "max_replicas", 5),
        ("--clean-finished-pods", "clean_finished_pods", True),
        ("--events=off", "events", "off"),
        ("--threadiness=2", "controller_threads", 2),
        ("--monitoring-port=9090", "metrics_bind_address", ":9090"),
        ("--monitoring-port=0", "metrics_bind_address", "0"),
        ("--kubeConfig=/a", "kubeconfig", "/a"),
        ("--master=http://127.0.0.1:8001", "master", "http://127.0.0.1:8001"),
        ("--controller-queue-rate-limit=10", "leader_elect", False),
        ("--controller-queue-burst=100", "leader_elect", False),
        ("--v=0", "log_level", "info"),
        ("--v=3", "log_level", "info"),
        ("-v=4", "log_level", "debug"),
        ("--version=false", "leader_elect", False),
    ],
)
def test_each_flag_sets_its_setting(flag: str, setting: str, value: Any) -> None:
    """All of the original's are taken; whether their value stands behind the sign of equality or alone."""
    assert getattr(parsed(flag), setting) == value
    name, equals, rest = flag.partition("=")
    if equals and setting != "leader_elect" and name != "--zap-devel":
        assert getattr(parsed(name, rest), setting) == value


@pytest.mark.parametrize(
    ("flag", "option"),
    [
        ("--pytorch-init-container=off", PyTorchOptions(init_container=False)),
        ("--pytorch-init-container-image=busybox", PyTorchOptions(init_container_image="busybox")),
        ("--pytorch-init-container-template-file=/a", PyTorchOptions(init_container_template_file="/a")),
        ("--pytorch-init-container-max-tries=7", PyTorchOptions(init_container_max_tries=7)),
        ("--mpi-kubectl-delivery-image=a", MPIOptions(kubectl_delivery_image="a")),
        ("--mpi-wait-for-workers", MPIOptions(wait_for_workers=True)),
        ("--mpi-wait-for-workers=false", MPIOptions(wait_for_workers=False)),
        ("--mpi-ssh-check=false", MPIOptions(ssh_check=False)),
        ("--mpi-launcher-only-key", MPIOptions(launcher_only_key=True)),
        ("--mpi-topology-label=rack", MPIOptions(topology_label="rack")),
    ],
)
def test_flags_of_kinds(flag: str, option: PyTorchOptions | MPIOptions) -> None:
    """Whether their value stands behind the sign of equality or alone."""
    assert find(type(option), parsed(flag).of_kinds) == option
    name, equals, rest = flag.partition("=")
    if equals:
        assert find(type(option), parsed(name, rest).of_kinds) == option


def test_the_arguments_of_the_manifest_of_mpi_operator() -> None:
    """They stand with one dash or two, and with or without a value."""
    arguments = ["-alsologtostderr", "--lock-namespace", "mpi-operator", "-v", "4", "-log_dir=/tmp"]

    settings = command.settings_from(command.build_parser().parse_args(command.with_two_dashes(arguments)))

    assert (settings.lock_namespace, settings.log_level) == ("mpi-operator", "debug")


def test_help_shows_each_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["controller", "--help"])

    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "at the same time; default: 16" in shown
    assert "reconcile only while this process holds the Lease; default: false" in shown
    assert "0 means no limit; default: 0 " in shown
    assert "a scheduler with coscheduling; default: none" in shown
    assert "default: None" not in shown
    assert "SUPPRESS" not in shown


@pytest.mark.parametrize("flag", ["--version", "-version=true"])
def test_the_version_names_the_commit(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(build.COMMIT_VARIABLE, "4f0ec42")
    with pytest.raises(SystemExit) as ended:
        main(["controller", flag])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"rallypoint-operator {build.operator_version()} (commit 4f0ec42)\n"


@pytest.mark.parametrize("text", ["a,b", " a, b,"])
def test_audiences_are_a_list(text: str) -> None:
    settings = parsed("--metrics-secure", f"--metrics-token-audiences={text}")

    assert settings.metrics_token_audiences == ("a", "b")


def test_repeated_kinds_are_collected() -> None:
    assert parsed("--enable-scheme=a", "--enable-scheme=b").enable_scheme == ("a", "b")


def test_the_namespace_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", "team")

    assert (parsed().namespace, parsed("--namespace=other").namespace) == ("team", "other")


def test_the_cluster_s_domain_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUSTOM_CLUSTER_DOMAIN", raising=False)
    assert parsed().cluster_domain == ""

    monkeypatch.setenv("CUSTOM_CLUSTER_DOMAIN", "cluster.local")
    assert parsed().cluster_domain == "cluster.local"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        pytest.param(["--no-such-flag"], "--no-such-flag", id="no such flag"),
        pytest.param(["--kube-api=5"], "--kube-api=5", id="half a flag"),
        pytest.param(["--controller-threads=many"], "--controller-threads", id="no number"),
        pytest.param(
            ["--controller-threads=0"], "--controller-threads must be at least 1", id="out of range"
        ),
        pytest.param(["--kube-api-qps=nan"], "--kube-api-qps must be a finite number", id="not a number"),
        pytest.param(["--namespace=Foo_Bar"], "'Foo_Bar' is not a valid namespace name", id="no namespace"),
        pytest.param(["--leader-elect=maybe"], "neither true nor false", id="neither true nor false"),
        pytest.param(["--leader-election-id=My/Lock"], "'My/Lock' is not a valid Lease name", id="no Lease"),
        pytest.param(["--enable-scheme=SparkJob"], "SparkJob: not a served kind", id="no such kind"),
        pytest.param(["--events=loud"], "--events must be one of", id="no such word"),
        pytest.param(["--zap-log-level=loud"], "--log-level must be one of", id="no such level"),
        pytest.param(["--metrics-bind-address=8080"], "'8080' is not host:port", id="no address of metrics"),
        pytest.param(
            ["--pprof-bind-address=:6060"],
            "--pprof-bind-address: ':6060' is not on loopback; use 127.0.0.1:6060",
            id="not on loopback",
        ),
        pytest.param(["--health-probe-bind-address=x"], "'x' is not host:port", id="no address of probes"),
    ],
)
def test_wrong_flags_end_with_2(flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["controller", *flags])
    except SystemExit as end:
        status = int(end.code or 0)

    assert status == 2
    assert complaint in capsys.readouterr().err


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Running:
    """A controller in a process of its own."""

    def __init__(self, process: Process, address: str) -> None:
        self.process = process
        self.address = address
        self.log: list[dict[str, Any]] = []

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.address}{path}") as answer:
            return answer.status, await answer.text()

    async def wait_for_log(self, event: str, *, has_plain_text: bool = False) -> dict[str, Any]:
        """Read the log up to the next line with that event; all lines before it are JSON, or some are plain text."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            if has_plain_text and not line.startswith(b"{"):
                continue
            self.log.append(json.loads(line))
            if self.log[-1]["msg"] == event:
                return self.log[-1]
        raise AssertionError(f"it ended without saying {event!r}: {self.log}")

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Exit status; TimeoutError if it takes longer than the grace that a pod has."""
        self.process.send_signal(number)
        async with asyncio.timeout(30):
            return await self.process.wait()


@asynccontextmanager
async def running(
    harness: Harness, folder: Path, *flags: str, kubeconfig: dict[str, Any] | None = None
) -> AsyncIterator[Running]:
    path, address = folder / "kubeconfig", free_address()
    path.write_text(yaml.safe_dump(kubeconfig or harness.server.kubeconfig()))
    addresses = [f"--metrics-bind-address={address}", f"--health-probe-bind-address={address}"]
    scheme = f"--enable-scheme={RESOURCE.kind}"  # the one that the harness defines
    command = ["-m", "controller", f"--kubeconfig={path}", scheme, *addresses, *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=PIPE)
    try:
        yield Running(process, address)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


real_time = pytest.mark.looptime(False)
"""The controller under test is a process of its own."""


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(1000):
        if await holds():
            return
        await asyncio.sleep(0.03)
    raise TimeoutError


async def until_conditions(harness: Harness, wanted: str, name: str = "train") -> None:
    async def are_so() -> bool:
        return await harness.conditions(name) == wanted

    await until(are_so)


async def until_pods(harness: Harness, count: int) -> None:
    async def are_there() -> bool:
        return len(await harness.names(PODS)) == count

    await until(are_there)


async def until_met(rule: Rule) -> None:
    async def is_met() -> bool:
        return rule.met > 0

    await until(is_met)


@real_time
async def test_a_job_runs_between_start_and_stop(tmp_path: Path) -> None:
    """The process gets ready, runs a job to success, exposes its metrics and stops on a signal."""
    async with start_harness() as harness, running(harness, tmp_path, "--leader-elect=false") as it:
        await it.wait_for_log("controllers started")
        assert await it.get("/healthz") == (200, "ok\n")
        assert await it.get("/readyz") == (200, "ok\n")
        await harness.submit()
        await until_pods(harness, 2)
        await harness.set_phase("Running")
        await until_conditions(harness, "Created T, Running T")
        await harness.set_phase("Succeeded", code=0)
        await until_conditions(harness, "Created T, Running F, Succeeded T")

        families = {
            metric.name: metric for metric in text_string_to_metric_families((await it.get("/metrics"))[1])
        }
        assert await it.stop() == 0

    jobs = {
        name: [(sample.labels, sample.value) for sample in family.samples if sample.name.endswith("_total")]
        for name, family in families.items()
        if name.startswith("training_operator_jobs")
    }
    labels = {"job_namespace": "default", "framework": "pytorch"}
    assert jobs == {
        f"training_operator_jobs_{count}": [(labels, value)]
        for count, value in {"created": 1, "deleted": 0, "successful": 1, "failed": 0, "restarted": 0}.items()
    }
    wanted = {
        family.name.removesuffix("_total")
        for group in GROUPS
        if group.title
        not in {"Metrics endpoint", shadow.GROUP.title}  # which need --metrics-secure and --shadow
        for family in group.families
    }
    assert families.keys() >= {name for name in wanted if not name.endswith("_info")}, (
        "the parser takes that word off"
    )
    answers = {sample.labels["code"] for sample in families["rest_client_requests"].samples if sample.value}
    assert answers == {"200", "201"}


@real_time
async def test_the_start_logs_version_commit_and_settings(tmp_path: Path) -> None:
    async with (
        start_harness() as harness,
        running(harness, tmp_path, "--controller-threads=4", "--mpi-ssh-check=false") as it,
    ):
        line = await it.wait_for_log("controller starting")

    assert (line["version"], line["commit"]) == (build.operator_version(), build.operator_commit())
    assert line["kinds"] == [RESOURCE.kind]
    settings = line["settings"]
    assert (settings["controller-threads"], settings["kube-api-burst"]) == (4, 30)
    assert (settings["mpi-ssh-check"], settings["pytorch-init-container"]) == (False, True)


@real_time
async def test_signals_change_the_log_level_and_dump_the_stacks(tmp_path: Path) -> None:
    async with start_harness() as harness, running(harness, tmp_path) as it:
        await it.wait_for_log("controllers started")
        it.process.send_signal(signal.SIGUSR2)
        assert (await it.wait_for_log("log level changed"))["to"] == "debug"
        await harness.submit()
        reconciled = await it.wait_for_log("reconciled")
        assert (reconciled["name"], reconciled["level"]) == ("train", "debug")
        it.process.send_signal(signal.SIGUSR2)
        assert (await it.wait_for_log("log level changed"))["to"] == "info"
        it.process.send_signal(signal.SIGUSR1)
        stack = (await it.wait_for_log("task stack", has_plain_text=True))["stack"]

        assert stack
        assert await it.stop() == 0


@real_time
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_sends_the_last_events(tmp_path: Path, number: signal.Signals) -> None:
    rule = Rule(Delay(1), verb="create", plural="events")
    async with start_harness(rule) as harness, running(harness, tmp_path) as it:
        await it.wait_for_log("controllers started")
        await harness.submit()
        await until_met(rule)

        assert await it.stop(number) == 0
        assert len(await harness.items(EVENTS)) == 4


@real_time
async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    """The process ends although a reconcile waits for a server that does not respond."""
    rule = Rule(Delay(1000))
    async with start_harness() as harness, running(harness, tmp_path) as it:
        await it.wait_for_log("controllers started")
        harness.faults.rules.append(rule)
        await harness.submit()
        await until_met(rule)
        it.process.send_signal(signal.SIGTERM)
        await it.wait_for_log("stopping")

        assert await it.stop() == 1
        await it.wait_for_log("stopped immediately")


@real_time
async def test_a_lost_lease_ends_with_1_and_a_message(tmp_path: Path) -> None:
    async with start_harness() as harness, running(harness, tmp_path, "--leader-elect") as it:
        await it.wait_for_log("controllers started")
        name = Settings().leader_election_id
        assert (await harness.get(LEASES, name))["spec"]["holderIdentity"].startswith(
            f"{socket.gethostname()}_"
        )
        await harness.change(LEASES, name, {"spec": {"holderIdentity": "somebody"}})

        assert name in (await it.wait_for_log("leader election lost, exiting"))["error"]
        assert await it.process.wait() == 1


@real_time
async def test_a_stop_releases_the_lease(tmp_path: Path) -> None:
    async with (
        start_harness() as harness,
        running(harness, tmp_path, "--leader-elect", "--leader-election-id=mine") as it,
    ):
        await it.wait_for_log("controllers started")

        assert await it.stop() == 0
        assert (await harness.get(LEASES, "mine"))["spec"]["holderIdentity"] == ""


@real_time
async def test_a_missing_namespace_of_the_lease_ends_with_1_and_a_message(tmp_path: Path) -> None:
    async with start_harness() as harness:
        config = harness.server.kubeconfig()
        del config["contexts"][0]["context"]["namespace"]
        async with running(harness, tmp_path, "--leader-elect", kubeconfig=config) as it:
            assert (
                "--leader-election-namespace" in (await it.wait_for_log("controller cannot start"))["error"]
            )
            assert await it.process.wait() == 1


@real_time
async def test_a_stop_before_it_is_ready(tmp_path: Path) -> None:
    rule = Rule(Refuse(403, "Forbidden", "not you"), plural="pods")
    async with start_harness(rule) as harness, running(harness, tmp_path) as it:
        assert (await it.wait_for_log("watch refused"))["error"] == "not you"
        assert (await it.get("/readyz"))[0] == 500
        assert (await it.get("/healthz"))[0] == 200

        assert await it.stop() == 0


@real_time
async def test_a_taken_port_ends_with_1_and_a_message(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with (
            start_harness() as harness,
            running(harness, tmp_path, f"--metrics-bind-address=127.0.0.1:{port}") as it,
        ):
            line = await it.wait_for_log("controller cannot start")

            assert str(port) in line["error"]
            assert await it.process.wait() == 1


@real_time
async def test_traces_that_are_not_possible_end_with_1_and_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    async with start_harness() as harness, running(harness, tmp_path, "--tracing") as it:
        assert "--tracing: $OTEL_EXPORTER" in (await it.wait_for_log("controller cannot start"))["error"]
        assert await it.process.wait() == 1


@real_time
async def test_stacks_can_be_read_from_loopback_until_the_stop(tmp_path: Path) -> None:
    address = free_address()
    flag = f"--pprof-bind-address={address}"
    async with (
        start_harness() as harness,
        running(harness, tmp_path, flag) as it,
        aiohttp.ClientSession() as session,
    ):
        await it.wait_for_log("controllers started")
        text = ""
        async with asyncio.timeout(30):
            # The tasks that the log line announces begin later.
            while "controller.runtime.workers" not in text:
                async with session.get(f"http://{address}/debug/pprof/stacks") as answer:
                    text = await answer.text()

        assert "thread MainThread" in text
        assert await it.stop() == 0


@real_time
async def test_a_missing_cluster_ends_with_1_and_a_message(tmp_path: Path) -> None:
    async with (
        start_harness() as harness,
        running(harness, tmp_path, f"--kubeconfig={tmp_path / 'nowhere'}") as it,
    ):
        assert "no such file" in (await it.wait_for_log("controller cannot start"))["error"]
        assert await it.process.wait() == 1


@real_time
async def test_a_missing_template_ends_with_1_and_a_message(tmp_path: Path) -> None:
    flag = f"--pytorch-init-container-template-file={tmp_path / 'nowhere'}"
    async with start_harness() as harness, running(harness, tmp_path, flag) as it:
        line = await it.wait_for_log("controller cannot start")

        assert line["error"] == f"{flag.replace('=', ' ')}: No such file or directory"
        assert await it.process.wait() == 1


@real_time
async def test_flags_without_effect_are_logged(tmp_path: Path) -> None:
    flags = [f"--{name}=7" for name in command.INERT]
    async with start_harness() as harness, running(harness, tmp_path, *flags) as it:
        await it.wait_for_log("controllers started")

    named = [line["flag"] for line in it.log if line["msg"] == "flag has no effect"]
    assert named == [f"--{name}" for name in command.INERT]


def test_an_uncaught_exception_is_a_line_of_the_log() -> None:
    program = """
from controller import command

async def _serve(settings): raise KeyError("defect")

command._serve = _serve
command.main([])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    last = [json.loads(line) for line in done.stderr.splitlines()][-1]
    assert (done.returncode, last["level"], last["msg"]) == (1, "critical", "crashed")
    assert "KeyError: 'defect'" in json.dumps(last)


CANARY = "canary-5f1d0f7e"


@real_time
async def test_no_secret_gets_into_log_metrics_or_events(tmp_path: Path) -> None:
    """Neither the service's token nor what a template holds, at any level of the log, whatever goes wrong."""
    env = [{"name": "PASSWORD", "value": CANARY}]
    container = {"name": "pytorch", "image": "img", "env": env}
    template = {"spec": {"containers": [container]}}
    refused = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    rules = [
        Rule(Refuse(500, "InternalError"), verb="create", plural="pods", times=2),
        Rule(
            Refuse(422, "Invalid", "no", fields=(("spec.x", "no"),)),
            verb="create",
            plural="pods",
            containing=b"wrong-",
            times=5,
        ),
    ]
    async with (
        start_harness(*rules, token=CANARY) as harness,
        running(harness, tmp_path, "--log-level=debug") as it,
    ):
        await it.wait_for_log("controllers started")
        await harness.submit(pytorchReplicaSpecs={"Master": {"template": template}})
        await harness.submit("wrong", pytorchReplicaSpecs={"Master": {"template": refused}})
        await until_conditions(harness, "Created T, Failed T", "wrong")
        await until_pods(harness, 1)
        metrics = (await it.get("/metrics"))[1]
        await it.stop()
        assert it.process.stderr is not None
        log = json.dumps(it.log) + (await it.process.stderr.read()).decode()
        events = json.dumps(await harness.items(EVENTS))
        async with Client(harness.connection) as client:
            pod = (await client.get(PODS, "default", "train-master-0")).decode()

    assert CANARY in pod
    assert "reconcile failed" in log
    assert CANARY not in log + metrics + events


HEAVY = (
    "kubernetes_asyncio",
    "rallypoint.local",
    "rallypoint.testing",
    "controller.crds",
    "controller.server.debug",
    "controller.telemetry.tracing",
    "opentelemetry",
    "torch",
    "psutil",
    "cryptography",
    "yaml",
)


@real_time
@pytest.mark.parametrize("module", ["controller.app", "controller.command"])
async def test_the_controller_imports_no_unneeded_module(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE)
    out, _ = await process.communicate()
    loaded = json.loads(out)

    assert module in loaded
    assert [
        module_name
        for module_name in loaded
        if f"{module_name}.".startswith(tuple(f"{name}." for name in HEAVY))
    ] == []


def test_flags_can_have_a_single_dash(capsys: pytest.CaptureFixture[str]) -> None:
    """As with Go's flag package, the value is invalid, not the flag unknown."""
    assert main(["controller", "-controller-threads=0"]) == 2
    assert "--controller-threads must be at least 1" in capsys.readouterr().err
