"""The init container that waits until a name resolves."""

import pytest

from controller.kinds.pytorch.init_container import from_template, until_resolved
from controller.kinds.pytorch.options import PyTorchOptions


def test_the_init_container_waits_for_the_master() -> None:
    options = PyTorchOptions(init_container_image="mirror/alpine:3", init_container_max_tries=7)

    (made,) = until_resolved("wait", "head-0", options)

    assert made == {
        "name": "wait",
        "image": "mirror/alpine:3",
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "sh",
            "-c",
            "err=1;for i in $(seq 7); do if nslookup head-0; then err=0 && break; fi;echo waiting for master; sleep 2; done; exit $err",
        ],
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def test_the_wait_tries_a_hundred_times() -> None:
    (made,) = until_resolved("wait", "head-0", PyTorchOptions())

    assert made["image"] == "alpine:3.10"
    assert "seq 100" in made["command"][-1]


def test_the_wait_can_be_left_out() -> None:
    assert until_resolved("wait", "head-0", PyTorchOptions(init_container=False)) == []


def test_a_template_file_replaces_the_wait() -> None:
    text = """
- name: one
  image: {{.InitContainerImage}}
  command: [sh, -c, "echo '<&+>' {{ .MasterAddr }} {{.Unknown}}"]
- name: two
  args: ["{{.MaxTries}}"]
"""
    options = PyTorchOptions(
        init_container_template=text, init_container_image="img&1", init_container_max_tries=3
    )

    made = until_resolved("wait", "head-0", options)

    assert made == [
        {
            "name": "one",
            "image": "img&1",
            "command": ["sh", "-c", "echo '<&+>' head-0 {{.Unknown}}"],
        },
        {"name": "two", "args": ["3"]},
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("a: [", "it is not YAML", id="no YAML"),
        pytest.param("name: one", "it is not a list of containers", id="one container, no list"),
        pytest.param(
            "- name: one\n- image: x", "entry 2 of its list is not a container with a name", id="no name"
        ),
    ],
)
def test_invalid_templates_are_errors(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_template(PyTorchOptions(init_container_template=text), "head-0")


def test_a_name_with_a_dot_is_completed_with_the_domain_of_the_namespace() -> None:
    """BusyBox's nslookup does not do it."""
    (made,) = until_resolved("wait", "head-0.train", PyTorchOptions())

    script = made["command"][-1]

    assert "</etc/resolv.conf;" in script
    assert "if nslookup head-0.train || nslookup head-0.train.$domain; then" in script


def test_a_template_file_gets_the_full_name() -> None:
    options = PyTorchOptions(init_container_template="[{name: one, args: ['{{.MasterAddr}}']}]")

    (made,) = until_resolved("wait", "head-0.train", options, "head-0.train.ml.svc.cluster.local")

    assert made["args"] == ["head-0.train.ml.svc.cluster.local"]
