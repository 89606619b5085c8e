"""The command lines that mpirun, hydra, horovodrun and kubexec.sh write."""

import pytest

from rallypoint.local.node.remote.command_line import Call, UnsupportedCommandLine, kubectl, ssh


@pytest.mark.parametrize(
    ("words", "call"),
    [
        pytest.param(
            ["-x", "-o", "ConnectionAttempts=10", "pi-worker-0.pi.hpc.svc", " PATH=/usr/bin ; orted --x"],
            Call("pi-worker-0.pi.hpc.svc", ("/bin/sh", "-c", " PATH=/usr/bin ; orted --x"), attempts=10),
            id="Open MPI",
        ),
        pytest.param(
            ["-x", "w", '"/usr/bin/hydra_pmi_proxy"', "--control-port", "l:1", "-n"],
            Call("w", ("/bin/sh", "-c", '"/usr/bin/hydra_pmi_proxy" --control-port l:1 -n')),
            id="hydra: the command has options of its own",
        ),
        pytest.param(
            ["-o", "PasswordAuthentication=no", "w", "-p", "22", "true"],
            Call("w", ("/bin/sh", "-c", "true")),
            id="horovodrun: options behind the host",
        ),
        pytest.param(
            ["-qnttl", "me", "-p2222", "-oConnectionAttempts 3", "you@w", "--", "id"],
            Call("w", ("/bin/sh", "-c", "id"), has_input=False, attempts=3),
            id="options in one word, with their values, and a user",
        ),
        pytest.param(["w"], Call("w", ("/bin/sh",)), id="a shell"),
    ],
)
def test_ssh(words: list[str], call: Call) -> None:
    assert ssh(words) == call


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param([], "usage: ssh", id="no host"),
        pytest.param(["-o"], "usage: ssh", id="no value"),
        pytest.param(["-N", "-L", "1:w:2", "w"], "option -N is not available", id="a tunnel"),
        pytest.param(["-f", "w", "sleep 9"], "option -f is not available", id="in the background"),
    ],
)
def test_ssh_refuses(words: list[str], said: str) -> None:
    with pytest.raises(UnsupportedCommandLine, match=said):
        ssh(words)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        pytest.param(
            ["exec", "pi-worker-0", "--", "/bin/sh", "-c", "orted -c x"],
            Call("pi-worker-0", ["/bin/sh", "-c", "orted -c x"], has_input=False, attempts=10),
            id="kubexec.sh",
        ),
        pytest.param(
            ["exec", "pi-worker-0", "--container", "trainer", "--", "id"],
            Call("pi-worker-0", ["id"], container="trainer", has_input=False, attempts=10),
            id="kubexec.sh with a main container",
        ),
        pytest.param(
            ["--namespace=a", "exec", "-it", "pod/w", "-c=x", "--", "cat"],
            Call("w", ["cat"], namespace="a", container="x", attempts=10),
            id="as people write it",
        ),
        pytest.param(
            ["exec", "--stdin=false", "-n", "a", "w", "--", "cat", "--", "-i"],
            Call("w", ["cat", "--", "-i"], namespace="a", has_input=False, attempts=10),
            id="no input, and dashes in the command",
        ),
    ],
)
def test_kubectl(words: list[str], call: Call) -> None:
    assert kubectl(words) == call


@pytest.mark.parametrize(
    "words", [["get", "pods"], ["exec", "w", "id"], ["exec", "--", "id"], [], ["exec", "w", "x", "--", "id"]]
)
def test_kubectl_refuses(words: list[str]) -> None:
    with pytest.raises(UnsupportedCommandLine, match="error: "):
        kubectl(words)
