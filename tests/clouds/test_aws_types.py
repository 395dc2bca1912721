"""Our reading of AWS's GPU machines against AWS's own descriptions, of which moto carries a recorded copy."""

from __future__ import annotations

import pytest

from providers.aws.hardware import InstanceType, families, gpu_of_family
from providers.aws.regions import types_of
from providers.aws.session import Connections
from providers.collect.facts import Finding
from providers.hardware import GPUS


@pytest.fixture(scope="module")
def described() -> dict[str, InstanceType]:
    moto = pytest.importorskip("moto")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        with moto.mock_aws():
            finding = Finding("us-east-1")
            found = types_of(Connections().client("ec2", "us-east-1"), finding)
    assert finding.result().flagged == ()
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_recorded_gpu_machine_is_read_whole(described):
    assert len(described) >= 60
    for kind in described.values():
        assert kind.gpu_count >= 1
        assert kind.vcpu >= 4
        assert kind.memory_bytes > 0
        assert kind.gpu is None or kind.gpu in GPUS


@pytest.mark.parametrize(
    ("name", "gpu", "count"),
    [
        ("p4d.24xlarge", "A100-40GB", 8),
        ("p4de.24xlarge", "A100-80GB", 8),
        ("p5.4xlarge", "H100", 1),
        ("p5en.48xlarge", "H200", 8),
        ("p6-b200.48xlarge", "B200", 8),
        ("g5.48xlarge", "A10G", 8),
        ("g6e.xlarge", "L40S", 1),
        ("g4dn.metal", "T4", 8),
    ],
)
def test_canonical_names_of_the_machines_that_matter(described, name, gpu, count):
    assert (described[name].gpu, described[name].gpu_count) == (gpu, count)


def test_the_catalogue_agrees_with_what_aws_describes(described):
    """It serves those without an account."""
    for name, kind in described.items():
        if name.partition(".")[0] in families():
            assert gpu_of_family(name)[0] == kind.gpu, name
