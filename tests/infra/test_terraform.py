"""The Terraform module of AWS: formatted, valid, and applied and destroyed on moto.

Needs terraform and, in a folder that TF_PLUGINS names, the plugin hashicorp/aws: nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.aws.calls import policy
from providers.aws.networks import Networks
from providers.aws.session import Connections
from providers.clock import SystemClock
from providers.policy import Use

MODULE = Path(__file__).parents[2] / "infra" / "aws"
PLUGINS = ("/opt/tf-plugins", "/usr/share/terraform/plugins", "/usr/local/share/terraform/plugins")
INSTALL = "tw-0123456789abcdef"
LOOPBACK = """provider "aws" {
  region                      = "us-east-1"
  access_key                  = "testing"
  secret_key                  = "testing"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
}
"""


@pytest.fixture(scope="module")
def terraform() -> str:
    found = shutil.which("terraform")
    if found is None:
        pytest.skip("terraform is not installed here")
    return found


class Workspace:
    """A copy of the module, and terraform in it, which takes plugins from this machine only."""

    def __init__(self, program: str, folder: Path, plugins: Path, endpoint: str = "") -> None:
        self._program, self.folder = program, folder / "module"
        shutil.copytree(MODULE, self.folder)
        (self.folder / "loopback.tf").write_text(LOOPBACK)
        mirror = f'provider_installation {{\n  filesystem_mirror {{\n    path = "{plugins}"\n  }}\n}}\n'
        (folder / "terraformrc").write_text(f"disable_checkpoint = true\n{mirror}")
        more = {
            "TF_CLI_CONFIG_FILE": str(folder / "terraformrc"),
            "TF_IN_AUTOMATION": "1",
            "AWS_ENDPOINT_URL": endpoint,
        }
        self._environment = {**os.environ, **more}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [self._program, *arguments, "-no-color"]
        return subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def plugins() -> Path:
    places = [Path(each) for each in (os.environ.get("TF_PLUGINS", ""), *PLUGINS) if each]
    found = next((each for each in places if (each / "registry.terraform.io/hashicorp/aws").is_dir()), None)
    if found is None:
        pytest.skip("the Terraform plugin hashicorp/aws is not here; TF_PLUGINS is a folder with it")
    return found


@pytest.fixture
def aws() -> Iterator[str]:
    """The address of a loopback AWS, in a process of its own."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_the_module_is_formatted(terraform: str) -> None:
    done = subprocess.run(
        [terraform, "fmt", "-check", "-diff", str(MODULE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_module_is_valid(terraform: str, plugins: Path, tmp_path: Path) -> None:
    workspace = Workspace(terraform, tmp_path, plugins)
    assert workspace("init", "-backend=false").returncode == 0
    done = workspace("validate")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)  # the plugin waits for 25 s until a queue's changes, and for 55 s until a bucket's, must hold
def test_the_module_is_applied_without_drift_used_and_destroyed(
    terraform: str, plugins: Path, aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(terraform, tmp_path, plugins, aws)
    variables = {
        "install": INSTALL,
        "bucket": "a-bucket-of-a-test",
        "policy": policy(list(Use)).text,
        "control_plane": "arn:aws:iam::123456789012:root",
        "interruption_queue": True,
    }
    (workspace.folder / "test.auto.tfvars.json").write_text(json.dumps(variables))
    for arguments in (["init"], ["apply", "-auto-approve", "-parallelism=20"], ["plan", "-detailed-exitcode"]):
        done = workspace(*arguments)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    outputs = json.loads(workspace("output", "-json").stdout)
    assert outputs["store_root"]["value"] == "s3://a-bucket-of-a-test/tradewind"
    for name, value in {
        "AWS_ENDPOINT_URL": aws, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    network = Networks(Connections(), SystemClock()).network(INSTALL, "us-east-1", wanted=True)
    assert network is not None
    assert network.ready, network.missing
    done = workspace("destroy", "-auto-approve", "-refresh=false")  # the plan has just looked at everything
    assert done.returncode == 0, done.stderr
    assert Networks(Connections(), SystemClock()).network(INSTALL, "us-east-1", wanted=False) is None
