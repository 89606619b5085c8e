"""The examples as a real cluster gets them: nothing is changed but where their pods run and where they find a framework."""

import pytest

from rallypoint.testing.cluster import images
from rallypoint.testing.cluster.workloads import example, templates


def test_pods_have_the_environment_of_their_framework_where_the_machine_has_it() -> None:
    (document,) = example("pytorch/digits.yaml")
    folder = str(images.environment("demo"))

    for template in templates(document).values():
        (container,) = template["spec"]["containers"]
        assert container["command"] == ["python", "examples/pytorch/digits.py"]
        assert template["spec"]["volumes"] == [{"name": "environment", "hostPath": {"path": folder}}]
        assert container["volumeMounts"] == [{"name": "environment", "mountPath": folder, "readOnly": True}]


@pytest.mark.parametrize("manifest", ["tensorflow/parameter-server.yaml", "mpi/pi.yaml"])
def test_each_role_has_its_own_spread_constraint(manifest: str) -> None:
    """This holds even if the manifest uses the same template for all roles."""
    (document,) = example(manifest)

    for role, template in templates(document).items():
        (spread,) = template["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == {"role": role} == template["metadata"]["labels"]


def test_an_object_that_is_not_a_job_is_unchanged() -> None:
    claim, _ = example("pytorch/elastic.yaml")

    assert claim["kind"] == "PersistentVolumeClaim"
    assert templates(claim) == {}
