"""What a host answers is checked: one that lies, or is somebody else's, harms no other and stops nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from providers.base import LaunchSpec
from providers.clock import VirtualClock
from providers.errors import ProviderError, UnavailableError
from providers.static import StaticProvider
from providers.static import ssh as ssh_module
from providers.static.hosts import Host, read_hosts
from providers.static.on_host import ANSWER
from providers.static.ssh import Ssh

DESK = {"address": "desk.lan", "vcpus": 16, "memory_gb": 64, "region": "lab"}
HOSTS = read_hosts({"a": DESK, "b": {**DESK, "address": "other.lan"}})
MACHINE: dict[str, Any] = {
    **{"id": "static-a-1", "token": "t", "fingerprint": "f", "offer_id": HOSTS[0].offer.id, "tags": {}},
    **{"accepted_ms": 1, "state": "running", "reason": None, "lasted_ms": None},
}
LOOK = {
    **{"python": "3.11", "architecture": "x86_64", "bash": True, "free_bytes": 10**12, "wall_ms": 0, "gpus": None},
    **{"free_slots": 1, "known": []},
}


class Said(Ssh):
    """Every host answers what `said` has for it."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = said

    def ask(self, host: Host, request: Mapping[str, Any]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.said[host.name]
        return found


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def cloud(state: Path, **said: Any) -> StaticProvider:
    return StaticProvider(HOSTS, state, VirtualClock(), Said(said))


def test_a_host_says_nothing_about_machines_of_another(state: Path) -> None:
    ended = {**MACHINE, "id": "static-b-1", "state": "terminated", "reason": "failed", "lasted_ms": 5}
    lies = cloud(state, a={"machines": [MACHINE, ended]}, b={"machines": [{**MACHINE, "id": "static-b-1"}]})
    for found in (lies.list_owned(""), lies.find("t", "lab"), lies.describe(["static-a-1", "static-b-1"])):
        assert {each.id: each.alive for each in found} in ({"static-a-1": True, "static-b-1": True},)


def test_a_host_that_is_declared_under_two_names_is_asked_for_one_machine(state: Path) -> None:
    """Both names lead to one folder, so both report the machine of a launch."""
    spec = LaunchSpec("t", HOSTS[0].offer.id, "true", {})
    fingerprint = spec.fingerprint
    known = {**LOOK, "known": [{"id": "static-a-1", "fingerprint": fingerprint}], "machines": []}
    twice = cloud(state, a=known, b=known)
    assert [each.split("-")[1] for each in twice.launch(spec)] == ["a"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from([*LOOK, "machines"]), JSON),
    st.dictionaries(st.sampled_from(sorted(MACHINE)), JSON),
)
@example({"machines": None, "known": 5}, {})
@example({}, {"state": "asleep", "accepted_ms": "later", "tags": []})
@example({"free_bytes": "5"}, {})
@example({"free_slots": float("inf")}, {})
@example({"free_bytes": float("nan")}, {})
@example({"gpus": {"names": "none", "why": 5}}, {})
@example({}, {"accepted_ms": float("inf")})
@example({}, {"accepted_ms": 10**30})
@example({}, {"id": "static-a-\x1b[2J\ud800"})
def test_an_answer_that_is_none_is_an_error_of_that_host(
    state: Path, answer: dict[str, Any], machine: dict[str, Any]
) -> None:
    good, bad = {**LOOK, "machines": []}, {**LOOK, "machines": [{**MACHINE, **machine}], **answer}
    odd = cloud(state, a=bad, b=good)
    spec = LaunchSpec("t", HOSTS[0].offer.id, "true", {})
    for ask in (
        lambda: odd.list_owned(""),
        lambda: odd.find("t", "lab"),
        lambda: odd.describe(["static-a-1"]),
        lambda: odd.launch(spec),
        odd.quotas,
        lambda: odd.examine("a"),
    ):
        try:
            ask()
        except ProviderError:
            continue


SSH = """#!{python}
import sys
{body}
"""


def answers(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Ssh:
    program = folder / "ssh"
    program.write_text(SSH.format(python=sys.executable, body=body))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Ssh(folder)


def test_a_shell_that_greets_without_end_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_module, "MOST_ANSWER_BYTES", 1 << 20)
    for stream in ("stdout", "stderr"):
        ssh = answers(tmp_path, monkeypatch, f"while '-O' not in sys.argv: sys.{stream}.write('welcome' * 1000)")
        with pytest.raises(UnavailableError, match="does not end"):
            ssh.ask(HOSTS[0], {"operation": "report"})


def test_greetings_around_an_answer_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = json.dumps({"machines": []})
    body = f"given = sys.stdin.read(); print('hello', len(given) > 1000); print('{ANSWER}' + {said!r}); print('bye')"
    assert answers(tmp_path, monkeypatch, body).ask(HOSTS[0], {"operation": "report"}) == {"machines": []}


def test_a_host_that_reads_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = answers(tmp_path, monkeypatch, "sys.stdin.close(); sys.exit(1)")
    with pytest.raises(ProviderError):
        ssh.ask(HOSTS[0], {"operation": "launch", "user_data": "x" * (1 << 20)})


@pytest.mark.parametrize(
    "said", ["[" * 100_000, "9" * 5000, '{"machines": ' * 50_000], ids=["lists", "digits", "objects"]
)
def test_an_answer_that_no_reader_can_hold_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    ssh = answers(tmp_path, monkeypatch, f"sys.stdin.read(); print('{ANSWER}' + {said!r})")
    with pytest.raises(UnavailableError):
        ssh.ask(HOSTS[0], {"operation": "report"})


def test_what_a_host_says_of_itself_cannot_control_a_terminal(state: Path) -> None:
    lies = cloud(state, a={**LOOK, "python": "3\x1b[2J\u202e\ud800", "architecture": "x86_64"}, b=LOOK)
    assert lies.examine("a").isprintable()
    lies = cloud(state, a={**LOOK, "architecture": "\x1b]0;x\x07" + "x" * 10**6}, b=LOOK)
    with pytest.raises(ProviderError) as raised:
        lies.examine("a")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1000
