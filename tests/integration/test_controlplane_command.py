"""``python -m rallypoint.testing.controlplane`` from a shell."""

import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
import yaml

COMMAND = [sys.executable, "-m", "rallypoint.testing.controlplane"]


def test_build_prints_where_the_programs_are() -> None:
    done = subprocess.run(
        [*COMMAND, "build", "etcd", "kube-apiserver"], capture_output=True, text=True, check=True
    )

    paths = dict(line.split(": ") for line in done.stdout.splitlines())
    assert list(paths) == ["etcd", "kube-apiserver"]
    assert all(Path(path).is_file() for path in paths.values())


def test_an_unknown_program_is_an_error() -> None:
    done = subprocess.run([*COMMAND, "build", "kubeadm"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("error: no such program: kubeadm")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_up_serves_until_it_gets_a_signal(sent: signal.Signals, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    arguments = ["up", "--user", "unprivileged-user", "--controllers", "", "--audit-policy", str(policy)]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said: dict[str, str] = {}
        for line in process.stdout:
            name, _, value = line.strip().partition(": ")
            said[name] = value
            if name.startswith("Ctrl-C"):
                break
        config = yaml.safe_load(Path(said["kubeconfig of unprivileged-user"]).read_text())
        audited = Path(said["audit log"]).stat().st_size
        process.send_signal(sent)
        killer = threading.Timer(60, process.kill)
        killer.start()
        code = process.wait()
        killer.cancel()

    assert code == 130
    assert config["clusters"][0]["cluster"]["server"] == said["server"]
    assert audited > 0
    assert not Path(said["logs"]).exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(said["server"], timeout=5)
