"""``rallypoint run`` as a process: output, exit status, and no remaining processes or files."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from rallypoint.cli import main
from rallypoint.cli.local_flags import run_folder
from rallypoint.cli.run import seconds
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.up import RALLYPOINT

pytestmark = pytest.mark.looptime(False)

ROOT = Path(__file__).parents[3]
COMMAND = [*RALLYPOINT, "run"]


def job(name: str = "job", *, master: str = "true", worker: str = "", **worker_spec: Any) -> dict[str, Any]:
    def replica(script: str, replicas: int = 1, **spec: Any) -> dict[str, Any]:
        container = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script]}
        return {"replicas": replicas, "template": {"spec": {"containers": [container]}}, **spec}

    replicas = {"Master": replica(master)} | ({"Worker": replica(worker, **worker_spec)} if worker else {})
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def write(folder: Path, *documents: Any, name: str = "job.yaml") -> str:
    file = folder / name
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


async def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    async with started(folder, *arguments) as process:
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def started(folder: Path, *arguments: str) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--run-dir", str(folder / "run"), *arguments, cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def read_until(process: Process, text: str) -> str:
    """The first line with ``text``."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while text not in (line := (await process.stdout.readline()).decode()):
            assert line, f"it ended without {text!r}"
    return line


MASTER = {"loopback": "127.", "namespaces": "job-master-0"}
Left: TypeAlias = Callable[[], list[str]]


async def test_a_job_that_succeeds(tmp_path: Path, isolation: IsolationMode) -> None:
    done = tmp_path / "done"
    master = f"echo hello from $MASTER_ADDR; until [ -e {done} ]; do sleep 0.05; done"
    file = write(tmp_path, job(master=master, worker=f"echo I am $RANK of $WORLD_SIZE; touch {done}"))
    status, out, _ = await run(tmp_path, file, "--isolation", isolation)

    assert status == 0
    assert f"[master-0] hello from {MASTER[isolation]}" in out
    assert f"local node with {isolation} isolation" in out
    assert "[worker-0] I am 1 of 2\n" in out
    assert "PyTorchJob default/job: Succeeded" in out
    assert "images are not pulled" in out
    assert f"relative paths start at {ROOT}\n" in out
    logs = [path.read_text() for path in (tmp_path / "run" / "logs").rglob("pytorch/0.log")]
    assert "I am 1 of 2\n" in logs
    assert "caches synced" in (tmp_path / "run" / "controller.log").read_text()


async def test_packages_in_the_working_directory_and_ours_do_not_shadow_each_other(tmp_path: Path) -> None:
    """A project often has a folder ``api`` or ``controller`` of its own."""
    for package in ("api", "controller", "rallypoint", "bench"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"OWNER = 'the user, {package}'\n")
    (tmp_path / "train.py").write_text(
        "import api, bench, controller, rallypoint\n"
        "print(*(package.OWNER for package in (api, bench, controller, rallypoint)), sep='; ')\n"
    )
    file = write(tmp_path, job(master=f"cd {tmp_path} && exec {sys.executable} train.py"))
    command = [*COMMAND, "--run-dir", str(tmp_path / "run"), file]
    done = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "the user, api; the user, bench; the user, controller; the user, rallypoint" in done.stdout


async def test_a_failed_job_as_json(tmp_path: Path) -> None:
    file = write(tmp_path, job(master="sleep 1000", worker="exit 3", restartPolicy="Never"))
    status, out, err = await run(tmp_path, "--output", "json", file)
    document = json.loads(out)
    (failed,) = document["jobs"]

    assert (status, document["outcome"], document["exitStatus"]) == (1, "Failed", 1)
    assert (failed["condition"], failed["reason"]) == ("Failed", "PyTorchJobFailed")
    assert {replica["name"]: (replica["phase"], replica["exitCode"]) for replica in failed["replicas"]} == {
        "job-master-0": ("Stopped", None),
        "job-worker-0": ("Failed", 3),
    }
    assert "worker-0: Failed (exit code 3)" in err


async def test_the_example_with_exit_codes(tmp_path: Path) -> None:
    """A retryable code replaces the worker, a permanent one fails the job."""
    status, out, err = await run(tmp_path, "--output", "json", "examples/pytorch/exit-codes.yaml")
    (failed,) = json.loads(out)["jobs"]
    worker = failed["replicas"][1]

    assert (status, failed["condition"]) == (1, "Failed")
    assert (worker["restarts"], worker["exitCode"], len(worker["logs"])) == (1, 3, 2)
    assert "worker-0: Failed (exit code 143)" in err
    assert failed["message"] == 'job "exit-codes" is failing because "Worker" replica(s) failed.'


async def test_several_files_and_documents(tmp_path: Path) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"LR": "0.1"}}
    first = job("first", master="echo lr $LR")
    container = first["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["envFrom"] = [{"configMapRef": {"name": "c"}}]
    first_file = write(tmp_path, first, settings, name="one.yaml")
    second_file = write(tmp_path, job("second"), name="two.yaml")
    status, out, _ = await run(tmp_path, first_file, second_file, "--namespace", "team")

    assert status == 0
    assert "[first/master-0] lr 0.1\n" in out
    assert "PyTorchJob team/first: Succeeded" in out
    assert "PyTorchJob team/second: Succeeded" in out


def bad(change: Any) -> dict[str, Any]:
    manifest = job()
    change(manifest["spec"]["pytorchReplicaSpecs"]["Master"])
    return manifest


@pytest.mark.parametrize(
    ("documents", "problems"),
    [
        pytest.param(
            [bad(lambda master: master.update(replicas="one"))],
            ["spec.pytorchReplicaSpecs.Master.replicas: Invalid value"],
            id="a wrong type",
        ),
        pytest.param(
            [bad(lambda master: master.update(replicsa=1, replicas="one"))],
            [
                'spec.pytorchReplicaSpecs.Master.replicsa: unknown field; did you mean "replicas"?',
                "spec.pytorchReplicaSpecs.Master.replicas: ",
            ],
            id="an unknown field beside a wrong type",
        ),
        pytest.param(
            [{"apiVersion": "kubeflow.org/v1", "kind": "TrainJob", "metadata": {"name": "x"}}],
            ["TrainJob x: no kind TrainJob in kubeflow.org/v1 is served here"],
            id="an unknown kind",
        ),
        pytest.param(
            [{"apiVersion": "kubeflow.org/v1", "kind": "PytorchJob", "metadata": {"name": "x"}}],
            [
                'PytorchJob x: no kind PytorchJob in kubeflow.org/v1 is served here; did you mean "PyTorchJob"?'
            ],
            id="a misspelt kind",
        ),
        pytest.param(
            [{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}, job()],
            ["Thing x: no kind Thing in example.com/v1 is served here"],
            id="an unknown group",
        ),
        pytest.param(
            [{**job(), "apiVersion": "kubeflow.org/v2"}],
            [
                'no kind PyTorchJob in kubeflow.org/v2 is served here; did you mean apiVersion "kubeflow.org/v1"?'
            ],
            id="an unknown version",
        ),
        pytest.param(
            [{"apiVersion": "kubeflow.org/v1", "kind": "ConfigMap", "metadata": {"name": "x"}}],
            ['no kind ConfigMap in kubeflow.org/v1 is served here; did you mean apiVersion "v1"?'],
            id="a kind of another group",
        ),
        pytest.param(
            [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}],
            ["job.yaml: no document is a job"],
            id="no job",
        ),
        pytest.param(
            [{**job(), "metadata": {"name": "Not_A_Name"}}], ["metadata.name: Invalid value"], id="a bad name"
        ),
        pytest.param(
            [job(), job()],
            ['PyTorchJob job: metadata.name: Duplicate value: "job": also in '],
            id="the same job twice",
        ),
        pytest.param(
            [bad(lambda master: master.update(replicas=2**70))],
            ["spec.pytorchReplicaSpecs.Master.replicas: Invalid value: not an integer of 64 bits"],
            id="a number that JSON cannot hold",
        ),
    ],
)
async def test_an_invalid_manifest_is_rejected(
    tmp_path: Path, documents: list[Any], problems: list[str]
) -> None:
    status, out, err = await run(tmp_path, write(tmp_path, *documents))

    assert status == 2
    for problem in problems:
        assert problem in err
    assert "[master-0]" not in out


async def test_a_rejected_manifest_as_json(tmp_path: Path) -> None:
    file = write(tmp_path, bad(lambda master: master.update(replicsa=1)))
    status, out, _ = await run(tmp_path, "-o", "json", file)
    document = json.loads(out)

    assert (status, document["outcome"], document["jobs"]) == (2, "Refused", [])
    assert [(problem["field"], problem["message"]) for problem in document["problems"]] == [
        ("spec.pytorchReplicaSpecs.Master.replicsa", 'unknown field; did you mean "replicas"?')
    ]


async def test_a_problem_that_only_the_controller_detects_fails_the_job(tmp_path: Path) -> None:
    manifest = job()
    spec = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    spec["containers"][0]["name"] = "main"
    status, out, _ = await run(tmp_path, write(tmp_path, manifest))

    assert status == 1
    assert "must have at least one container with name pytorch" in out


async def test_a_job_that_this_machine_cannot_run(tmp_path: Path) -> None:
    manifest = job()
    spec = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    status, out, _ = await run(tmp_path, write(tmp_path, manifest), "--isolation", "loopback")

    assert status == 1
    assert "PyTorchJob default/job: Refused" in out
    assert 'master-0: volume "scratch" cannot be mounted in container "pytorch" at /scratch' in out


async def test_a_job_that_can_never_run_here_is_refused_before_anything_runs(tmp_path: Path) -> None:
    manifest = job(worker="true")
    manifest["spec"]["runPolicy"] = {"suspend": True}
    for replica in manifest["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1000}}
    file = write(tmp_path, manifest)
    status, out, err = await run(tmp_path, file)

    assert (status, out) == (2, "")
    suspended, gpus = err.splitlines()
    assert suspended == (
        f"{file}: PyTorchJob job: spec.runPolicy.suspend: the job is suspended, and nobody resumes it in this run; remove the field"
    )
    fields = ", ".join(f"spec.pytorchReplicaSpecs.{role}.template.spec" for role in ("Master", "Worker"))
    assert gpus.startswith(f"{file}: PyTorchJob job: {fields}: a pod requests 1000 nvidia.com/gpu")


async def test_a_job_that_can_never_run_here_waits_if_asked(tmp_path: Path) -> None:
    manifest = job()
    manifest["spec"]["runPolicy"] = {"suspend": True}
    status, out, _ = await run(tmp_path, write(tmp_path, manifest), "--wait", "--timeout", "2s")

    assert status == 124
    assert "spec.runPolicy.suspend: the job is suspended" in out
    assert "PyTorchJob default/job: Suspended" in out


async def test_what_keeps_a_job_from_running_is_in_the_document(tmp_path: Path) -> None:
    manifest = job()
    manifest["spec"]["runPolicy"] = {"suspend": True}
    _, out, _ = await run(tmp_path, write(tmp_path, manifest), "--wait", "--timeout", "2s", "-o", "json")

    assert [problem["field"] for problem in json.loads(out)["problems"]] == ["spec.runPolicy.suspend"]


async def test_a_missing_program_ends_the_run_under_the_default_restart_policy(
    tmp_path: Path, isolation: IsolationMode
) -> None:
    manifest = job()
    (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    container["command"] = ["no-such-program"]
    status, out, _ = await run(tmp_path, write(tmp_path, manifest), "--isolation", isolation)

    assert status == 1
    assert "PyTorchJob default/job: Refused" in out
    assert (
        'container pytorch cannot start: exec: "no-such-program": executable file not found in $PATH' in out
    )


async def test_a_missing_working_directory_ends_the_run(tmp_path: Path, isolation: IsolationMode) -> None:
    manifest = job()
    (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    container["workingDir"] = "/no/such/folder"
    status, out, _ = await run(tmp_path, write(tmp_path, manifest), "--isolation", isolation)

    assert status == 1
    assert 'cannot start: chdir to cwd ("/no/such/folder"): no such file or directory' in out


async def test_a_missing_file(tmp_path: Path) -> None:
    status, _, err = await run(tmp_path, str(tmp_path / "none.yaml"))

    assert status == 2
    assert err == f"{tmp_path}/none.yaml: No such file or directory\n"


async def test_a_timeout(tmp_path: Path, left: Left, isolation: IsolationMode) -> None:
    file = write(tmp_path, job(master="setsid sleep 1000 & echo running now; sleep 1000"))
    status, out, _ = await run(tmp_path, "--timeout", "1s", "--isolation", isolation, file)

    assert status == 124
    assert "\nTimeout\n" in out
    assert left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interruption_leaves_nothing(
    tmp_path: Path, left: Left, isolation: IsolationMode, number: signal.Signals
) -> None:
    file = write(tmp_path, job(master="setsid sleep 1000 & echo running now; sleep 1000"))
    async with started(tmp_path, file, "--isolation", isolation) as process:
        await read_until(process, "running now")
        assert any("sleep 1000" in line for line in left())
        process.send_signal(number)
        out, _ = await process.communicate()

    assert process.returncode == 130
    assert b"\nInterrupted\n" in out
    assert left() == []


async def test_a_second_interruption_does_not_wait(
    tmp_path: Path, left: Left, isolation: IsolationMode
) -> None:
    script = "trap 'echo asked' TERM; echo running now; while :; do sleep 0.05; done"
    file = write(tmp_path, job(master=script))
    async with started(tmp_path, file, "--isolation", isolation) as process:
        await read_until(process, "running now")
        process.send_signal(signal.SIGINT)
        await until(lambda: "asked" in written(tmp_path))
        process.send_signal(signal.SIGINT)
        await process.communicate()

    assert process.returncode == 130
    assert left() == []


async def test_two_quick_interruptions_stop_a_run_as_one_does(tmp_path: Path) -> None:
    async with started(tmp_path, write(tmp_path, job(master="echo running now; sleep 1000"))) as process:
        await read_until(process, "PyTorchJob job: Running")
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.05)  # Signals that are sent together arrive as one.
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()

    assert process.returncode == 130
    assert "master-0  Stopped" in out.decode()
    assert "first to fail" not in out.decode()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - it cannot tell us
            await asyncio.sleep(0.01)


def written(folder: Path) -> str:
    (log,) = (folder / "run" / "logs").rglob("0.log")
    return log.read_text()


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("1.5", 1.5), ("15m", 900), ("1h30m", 5400)]
)
def test_times(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "m", "1d", "5 m", "-1"])
def test_an_invalid_duration_is_rejected(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["run", f"--timeout={text}", "job.yaml"])

    assert raised.value.code == 2
    assert "is not a time such as" in capsys.readouterr().err


def test_an_invalid_namespace_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", "-n", "BAD", "job.yaml"])

    assert "argument --namespace/-n: 'BAD' is not the name of a namespace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        pytest.param(["run", "--wiat", "job.yaml"], "usage: rallypoint run ", id="of a command"),
        pytest.param(["--wiat", "run", "job.yaml"], "usage: rallypoint [-h]", id="before the command"),
    ],
)
def test_an_unknown_flag_shows_the_usage_of_its_command(
    arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    shown = capsys.readouterr().err

    assert shown.startswith(usage)
    assert shown.endswith("error: unrecognized arguments: --wiat\n")


def test_each_run_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = run_folder(None), run_folder(None)

    assert first != second
    assert first.parent == tmp_path.resolve() / ".rallypoint" / "runs"
    assert first.is_dir()


def test_a_read_only_working_directory_is_replaced_by_the_state_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".rallypoint").write_text("in the way")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    assert run_folder(None).is_relative_to(tmp_path / "state" / "rallypoint" / "runs")


def test_a_closed_pipe_ends_the_run(tmp_path: Path) -> None:
    """As with ``| head -1``: no word more, and the status of a program that SIGPIPE has ended."""
    file = write(tmp_path, job(master="while :; do echo line; sleep 0.02; done"))
    reading, writing = os.pipe()
    with subprocess.Popen(
        [*COMMAND, "--run-dir", str(tmp_path / "run"), file], cwd=ROOT, stdout=writing, stderr=PIPE
    ) as process:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        assert process.wait(timeout=60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_closed_error_pipe_ends_the_run(tmp_path: Path) -> None:
    file = write(tmp_path, job(master="while :; do echo line; sleep 0.02; done"))
    reading, writing = os.pipe()
    with subprocess.Popen(
        [*COMMAND, "--run-dir", str(tmp_path / "run"), "-o", "json", file],
        cwd=ROOT,
        stdout=PIPE,
        stderr=writing,
    ) as process:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        out, _ = process.communicate(timeout=60)

    document = json.loads(out)
    assert (process.returncode, document["outcome"], document["exitStatus"]) == (141, "BrokenPipe", 141)


async def test_files_in_a_relative_run_folder_are_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder itself, and from one that the command changes to."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    script = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a.py": "print('ran')"},
    }
    manifest = job(master="python /etc/cfg/a.py && cd / && python /etc/cfg/a.py")
    spec = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "configMap": {"name": "c"}}]
    spec["containers"][0] |= {
        "workingDir": "/etc/cfg",
        "volumeMounts": [{"name": "v", "mountPath": "/etc/cfg"}],
    }
    status, out, _ = await run(tmp_path, "--run-dir", "here/run", write(tmp_path, script, manifest))

    assert status == 0
    assert out.count("[master-0] ran\n") == 2
    assert "\nlogs: here/run/logs\ncontroller log: here/run/controller.log\n" in out


@pytest.mark.parametrize("below", ["file", "file/below"])
async def test_a_run_folder_that_cannot_be_created(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("in the way")
    run_directory = str(tmp_path / below)
    status, out, err = await run(tmp_path, "--run-dir", run_directory, write(tmp_path, job()))

    assert (status, out) == (1, "")
    assert err.startswith(f"rallypoint run: cannot create the log folder: {run_directory}: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("before", "error"),
    [
        pytest.param("ulimit -f 1", "{folder}/run: File too large", id="no file can grow"),
        pytest.param('rmdir "$PWD"', "the working directory has been deleted", id="no working directory"),
    ],
)
def test_a_start_that_fails_is_one_line(tmp_path: Path, before: str, error: str) -> None:
    file, here = write(tmp_path, job()), tmp_path / "here"
    here.mkdir()
    command = ["sh", "-c", f'{before}; exec "$@"', "sh", *COMMAND, "--run-dir", str(tmp_path / "run"), file]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"rallypoint run: {error.format(folder=tmp_path)}"
    assert "Traceback" not in done.stderr


async def test_a_start_that_fails_as_json(tmp_path: Path) -> None:
    status, out, err = await run(tmp_path, write(tmp_path, job()), "--gpus", "1000", "-o", "json")
    document = json.loads(out)

    assert (status, err) == (1, "")
    assert (document["outcome"], document["exitStatus"], document["jobs"]) == ("Failed", 1, [])
    (problem,) = document["problems"]
    assert (problem["source"], problem["message"][:12]) == ("rallypoint run", "--gpus 1000:")


def test_an_interruption_before_the_start_is_silent(tmp_path: Path) -> None:
    """While a command is imported or its files are read; here it reads a file that never ends."""
    endless = tmp_path / "endless.yaml"
    os.mkfifo(endless)
    with (
        subprocess.Popen(
            [*COMMAND, "--run-dir", str(tmp_path / "run"), str(endless)], cwd=ROOT, stdout=PIPE, stderr=PIPE
        ) as process,
        endless.open("w"),
    ):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (130, b"", b"")


async def test_pending_pods_are_reported_with_their_reason(tmp_path: Path) -> None:
    """A missing ConfigMap can still be created by a pod with rights, as with a kubelet."""
    manifest = job(worker="cat /etc/secret/x")
    master, worker = (role["template"]["spec"] for role in manifest["spec"]["pytorchReplicaSpecs"].values())
    master["containers"][0]["envFrom"] = [{"configMapRef": {"name": "nothing"}}]
    worker["volumes"] = [{"name": "v", "secret": {"secretName": "none"}}]
    worker["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/etc/secret"}]
    async with started(tmp_path, write(tmp_path, manifest), "--wait") as process:
        lines = {await read_until(process, "-0: Pending (") for _ in range(2)}
        process.send_signal(signal.SIGINT)
        await process.communicate()

    assert lines == {
        'master-0: Pending (CreateContainerConfigError: configmap "nothing" not found)\n',
        'worker-0: Pending (MountVolume.SetUp failed for volume "v" : secret "none" not found)\n',
    }


async def test_an_image_needs_namespaces(tmp_path: Path) -> None:
    file = write(tmp_path, job())
    status, _, err = await run(tmp_path, file, f"--image=none={tmp_path}", "--isolation=loopback")

    assert status == 1
    assert "--image none=... needs --isolation namespaces" in err


@pytest.mark.parametrize("written", ["none", "=folder", "none=/nosuch"])
async def test_an_image_flag_has_a_name_and_a_folder(tmp_path: Path, written: str) -> None:
    status, _, err = await run(tmp_path, write(tmp_path, job()), f"--image={written}")

    assert status == 2
    assert "argument --image" in err


@pytest.mark.parametrize("output", ["text", "json"])
def test_output_that_cannot_be_written_is_reported_as_that(tmp_path: Path, output: str) -> None:
    arguments = (*COMMAND, "--run-dir", str(tmp_path / "run"), "-o", output, write(tmp_path, job()))
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(arguments, cwd=ROOT, stdout=full, stderr=PIPE, text=True, check=False)

    assert process.returncode == 1
    assert "rallypoint run: cannot write the output: No space left on device" in process.stderr
    assert "Traceback" not in process.stderr
