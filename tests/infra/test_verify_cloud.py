"""`infra/verify_cloud.sh` and what it records, as far as that can be tried without an account."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.questions import aws
from infra.record_replies import record, sanitised

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "infra" / "verify_cloud.sh"
SETTINGS = 'image = "ami-0123456789abcdef0"\nregions = ["a"]\ninstance_types = ["g5.xlarge"]\n'
STUB = """#!/bin/bash
echo "$*" >> {calls}
case "$*" in
  init*) cp {example} tradewind.toml ;;
  nodes*) echo '{nodes}' ;;
  "{fails}"*) exit 1 ;;
esac
"""


def verify(folder: Path, *arguments: str, fails: str = "nothing", nodes: str = "{}") -> tuple[int, str, list[str]]:
    """(exit code, all that is shown, the calls of tradewind), with a program in place of tradewind and Python."""
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir()
    (folder / "example.toml").write_text(SETTINGS)
    (programs / "tradewind").write_text(
        STUB.format(calls=calls, example=folder / "example.toml", fails=fails, nodes=nodes)
    )
    (programs / "python").write_text(
        f'#!/bin/bash\n[[ $1 == - ]] && exec {sys.executable} "$@"\necho "replies $*" >> {calls}\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": str(programs / "python")}
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines() if calls.exists() else []


def test_everything_is_asked_and_everything_is_ended(tmp_path: Path) -> None:
    code, shown, calls = verify(tmp_path, "aws", "s3://my-bucket/verify", "--yes")
    assert code == 0, shown
    assert calls == [
        "init --yes --clouds aws --store s3://my-bucket/verify --max-usd-per-hour 0.10",
        "up --cloud aws",
        "doctor --cloud aws",
        "offers --cloud aws",
        "submit gpt.yaml --yes --wait",
        "explain gpt",
        "report",
        "logs gpt",
        "replies -m infra.record_replies aws us-east-1 ami-0123456789abcdef0 s3://my-bucket/verify replies.json",
        "down --force",
        "nodes --output json",
        "down --cloud aws",
    ]
    (results,) = tmp_path.glob("tradewind-verify-aws-*")
    assert 'instance_types = ["t3.large"]' in (results / "tradewind.toml").read_text()
    assert "8 passed, 0 failed" in shown


def test_what_fails_is_reported_and_everything_is_ended_nevertheless(tmp_path: Path) -> None:
    code, shown, calls = verify(tmp_path, "gcp", "s3://my-bucket/verify", "--yes", fails="submit")
    assert code == 1
    assert "FAILED: a job runs on a rented machine" in shown
    assert calls[-3:] == ["down --force", "nodes --output json", "down --cloud gcp"]


def test_a_machine_that_is_left_is_reported(tmp_path: Path) -> None:
    code, shown, _ = verify(tmp_path, "aws", "s3://b/verify", "--yes", nodes='{"nodes": [{"instance_id": "i-1"}]}')
    assert code == 1
    assert "a machine is left" in shown


@pytest.mark.parametrize("arguments", [("aws", "s3://b/verify"), ("oracle", "s3://b/verify", "--yes"), ("aws",)])
def test_nothing_happens_without_agreement_or_with_a_wrong_name(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    _, _, calls = verify(tmp_path, *arguments)
    assert calls == []
    assert not list(tmp_path.glob("tradewind-verify-*"))


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("User: arn:aws:iam::210987654321:user/ann is not", "User: arn:aws:...:REMOVED is not"),
        (
            "The image id '[ami-0a1b2c3d4e5f60718]' does not exist",
            "The image id '[ami-0123456789abcdef0]' does not exist",
        ),
        ("account 210987654321", "account 123456789012"),
        ("from 54.12.200.7", "from 192.0.2.1"),
        ("key AKIAIOSFODNN7EXAMPLE", "key AKIAREMOVEDREMOVED00"),
        ("Encoded authorization failure message: bXkgc2VjcmV0", "Encoded authorization failure message: REMOVED"),
        ("in my-bucket", "in REMOVED"),
    ],
)
def test_replies_are_kept_without_what_names_an_account(said: str, kept: str) -> None:
    assert sanitised({"Error": [{"Message": said}], "Count": 3}, ("my-bucket",)) == {
        "Error": [{"Message": kept}], "Count": 3
    }  # fmt: skip


def test_what_fails_here_keeps_no_other_question_from_being_asked() -> None:
    def fails() -> Any:
        raise KeyError("no account of ada@example.org")

    found = record({"one": fails, "two": lambda: {"status": 404}}, aws.refused)
    assert found == {
        "one": {"not asked": "KeyError: 'no account of somebody@example.com'"},
        "two": {"reply": {"status": 404}},
    }


def test_fields_that_name_somebody_are_removed_whatever_they_hold() -> None:
    assert sanitised({"Account": 1, "ResponseMetadata": {"RequestId": "x", "HTTPStatusCode": 400}}) == {
        "Account": "REMOVED", "ResponseMetadata": {"RequestId": "REMOVED", "HTTPStatusCode": 400}
    }  # fmt: skip


class Refusing:
    """Clients of boto3 to whom AWS refuses everything."""

    def client(self, service: str, region: str, *, once: bool = False) -> Refusing:
        return self

    def __getattr__(self, operation: str) -> Any:
        def refuse(**_: Any) -> Any:
            said = {"Code": "InvalidAMIID.NotFound", "Message": "no image in the account 210987654321"}
            raise ClientError({"Error": said, "ResponseMetadata": {"RequestId": "r"}}, operation)

        return refuse


def test_a_refusal_is_recorded_with_the_error_that_it_is_here() -> None:
    asked, _ = aws.questions("us-east-1", "ami-0123456789abcdef0", "s3://my-bucket/verify", Refusing())
    found = record(asked, aws.refused)
    assert len(found) >= 10
    for each in found.values():
        assert each["read as"] == "SetupError"
        assert each["refusal"]["Error"]["Code"] == "InvalidAMIID.NotFound"
    assert "210987654321" not in json.dumps(found)
