"""`tradewind init`: three questions, a settings file, its check, and what a first job would cost."""

from __future__ import annotations

import json
import os
import pty
import select
import struct
import sys
import tomllib
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from typer.testing import CliRunner, Result

from orchestrator import Client
from orchestrator.cli.app import app
from orchestrator.config import SETTINGS, load_config
from orchestrator.errors import UsageError
from orchestrator.services.setup.answers import Answers, choices, with_credentials
from orchestrator.services.setup.file import is_required, settings_text

MAIN = ("-c", "from orchestrator.cli import main; main()")
FILE = "tradewind.toml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("TRADEWIND_SHARED", raising=False)  # of these tests, and not a setting
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def init(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments], prog_name="tradewind")


def at_a_terminal(answers: Sequence[str], *arguments: str, width: int = 80) -> tuple[int, str]:
    """(exit code, all that is shown) of `tradewind init`, with an answer to each question in turn."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, *MAIN, "init", *arguments])
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    shown, left = b"", list(answers)
    while select.select([terminal], [], [], 60)[0]:
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # it has ended
            break
        if left and shown.endswith((b": ", b"[y/N] ")):
            os.write(terminal, left.pop(0).encode() + b"\n")
    os.close(terminal)
    assert left == []
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode().replace("\r\n", "\n")


def test_without_a_terminal_the_defaults_are_the_market_on_this_machine(folder: Path) -> None:
    done = init()
    assert done.exit_code == 0, done.output
    assert tomllib.loads((folder / FILE).read_text()) == {
        "providers": {"enabled": ["local"]}, "limits": {"max_usd_per_hour": 5}
    }  # fmt: skip
    assert "ok  store" in done.stdout
    assert "a first job that needs an hour on one SIM-" in done.stdout
    assert "(simulated)" in done.stdout


def test_an_existing_file_is_kept_unless_somebody_agrees(folder: Path) -> None:
    (folder / FILE).write_text("lease_s = 30\n")
    assert init().exit_code == 2
    assert at_a_terminal(["n"])[0] == 0
    assert (folder / FILE).read_text() == "lease_s = 30\n"
    assert init("--yes", "--max-usd-per-hour", "7.5").exit_code == 0
    assert load_config(cwd=folder).limits.max_usd_per_hour == 7.5


def test_a_file_that_cannot_be_read_can_be_replaced(folder: Path) -> None:
    (folder / FILE).write_text("[[[")
    assert init("--yes").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--clouds", "amazon"), "'amazon'"),
        (("--clouds", ""), "no cloud"),
        (("--clouds", "local,aws"), "cannot be combined with aws"),
        (("--clouds", "aws,local,gcp"), "cannot be combined with aws and gcp"),
        (("--clouds", "aws"), "need a bucket"),
        (("--clouds", "aws", "--store", "/data"), "cannot reach the folder '/data'"),
        (("--clouds", "aws", "--store", "http://b/x"), "'http://b/x'"),
        (("--clouds", "aws", "--store", "s3://B_/x"), "write it like this: s3://bucket/prefix"),
        (("--max-usd-per-hour", "much"), "'much'"),
        (("--max-usd-per-hour", "-3"), "'-3'"),
        (("--max-usd-per-hour", "nan"), "'nan'"),
    ],
)
def test_a_wrong_answer_is_named_and_nothing_is_written(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    done = init(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert "hint: " in done.stderr
    assert not (folder / FILE).exists()


def test_at_a_terminal_each_question_is_asked_until_its_answer_is_right(folder: Path) -> None:
    code, shown = at_a_terminal(["amazon", "local", "", "lots", "$4"])
    assert code == 0, shown
    assert shown.count("Which clouds may jobs use?") == 2
    assert shown.count("in US dollars per hour?") == 2
    assert load_config(cwd=folder).limits.max_usd_per_hour == 4
    lines = shown.splitlines()
    assert [line for line in lines if len(line) > 80 and str(folder) not in line] == []


def test_yes_asks_nothing_at_a_terminal_either(folder: Path) -> None:
    (folder / FILE).write_text("[limits]\nmax_usd_per_hour = 1\n")
    code, shown = at_a_terminal([], "--yes", "--max-usd-per-hour", "7")
    assert code == 0, shown
    assert "Which clouds" not in shown
    assert load_config(cwd=folder).limits.max_usd_per_hour == 7


def test_a_wrong_option_is_refused_before_the_first_question(folder: Path) -> None:
    code, shown = at_a_terminal([], "--max-usd-per-hour", "lots")
    assert code == 2
    assert "Which clouds" not in shown
    assert not (folder / FILE).exists()


def test_after_three_wrong_answers_it_ends(folder: Path) -> None:
    code, _ = at_a_terminal(["x", "y", "z"])
    assert code == 2
    assert not (folder / FILE).exists()


def test_the_state_folder_of_the_command_line_is_kept_in_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRADEWIND_STATE_DIR")
    done = CliRunner().invoke(app, ["--state-dir", "elsewhere", "init"], prog_name="tradewind")
    assert done.exit_code == 0, done.output
    assert load_config(cwd=folder).state_dir == folder / "elsewhere"


def test_an_environment_variable_that_has_priority_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_LIMITS_MAX_USD_PER_HOUR", "9")
    assert "TRADEWIND_LIMITS_MAX_USD_PER_HOUR has priority" in init().stderr


def test_json_is_one_document(folder: Path) -> None:
    document = json.loads(init("--output", "json").stdout)
    assert document["schema"] == "tradewind/init/v1"
    assert document["first_job"]["cost_nano_usd"] > 0


def test_from_python_the_same_is_done(folder: Path) -> None:
    with Client(state_dir=folder / "state") as client:
        made = client.system.set_up(folder, clouds=["local"], max_usd_per_hour=2)
        assert made.max_usd_per_hour == 2
        with pytest.raises(UsageError, match="exists"):
            client.system.set_up(folder, clouds=["local"], max_usd_per_hour=2)


@pytest.mark.parametrize("cloud", choices())
def test_the_file_for_each_cloud_is_valid_and_has_what_the_cloud_needs(folder: Path, cloud: str) -> None:
    (folder / FILE).write_text(settings_text(Answers((cloud,), "s3://my-bucket/tw", 5.0), {}))
    load_config(cwd=folder)
    written = tomllib.loads((folder / FILE).read_text())["providers"].get(cloud, {})
    needed = {name.rpartition(".")[2] for name in SETTINGS if name.startswith(f"providers.{cloud}.")}
    assert written.keys() >= {key for key in needed if is_required(SETTINGS[f"providers.{cloud}.{key}"])}


def test_a_region_of_the_environment_replaces_the_example(folder: Path) -> None:
    text = settings_text(Answers(("aws",), "s3://my-bucket/tw", 5.0), {"AWS_REGION": "eu-north-1"})
    assert tomllib.loads(text)["providers"]["aws"]["regions"] == ["eu-north-1"]


def test_credentials_are_noticed_where_the_clouds_own_tools_keep_them(tmp_path: Path) -> None:
    assert with_credentials({"HOME": str(tmp_path)}) == ()
    assert "aws" in with_credentials({"HOME": str(tmp_path), "AWS_PROFILE": "work"})
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("")
    assert "aws" in with_credentials({"HOME": str(tmp_path)})
