"""Secrets go from the submitter's environment to the control plane, over a socket or not at all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from orchestrator import Client
from orchestrator.config import Config, load_config
from orchestrator.engine.secret_values import (
    MAX_TOTAL_CHARACTERS,
    UNKNOWN_S,
    Given,
    MissingSecret,
    SecretValues,
)
from orchestrator.errors import SiteError, StoreError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import Job, JobSpec, TrainSpec
from orchestrator.services.doctor import examine
from orchestrator.services.secrets import submission
from orchestrator.services.secrets.file import FILE, kept_secrets
from orchestrator.services.secrets.socket import SOCKET, SecretLine, hand_over
from providers.clock import VirtualClock
from trainers.process.masking import MAX_CHARACTERS

NAME = "TW_TEST_SECRET"
VALUE = "correct horse battery staple"


def job(job_id: str = "job_1", *names: str) -> Job:
    train = TrainSpec("train:main", None, {}, "/", {}, names or (NAME,), 10, None)
    return Job(job_id, JobSpec("secretive", train), "me", 0, "queued")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Too deep for the name of a socket."""
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    return deep


@pytest.fixture
def values() -> SecretValues:
    return SecretValues()


@pytest.fixture
def line(folder: Path, values: SecretValues) -> Iterator[SecretLine]:
    said: list[str] = []
    with SecretLine(folder, values, said.append) as listening:
        yield listening
    assert said == []


# What the control plane holds


def test_two_submitters_of_one_name_each_get_their_own_value(values: SecretValues) -> None:
    values.give({"job_1": {NAME: "one"}})
    values.give({"job_2": {NAME: "two"}})
    assert [values.of(job(job_id)) for job_id in ("job_1", "job_2")] == [{NAME: "one"}, {NAME: "two"}]


def test_a_missing_secret_is_named_with_the_command_that_gives_it(values: SecretValues) -> None:
    values.give({"job_1": {"A": "1"}})
    with pytest.raises(MissingSecret, match=r"^waits for `tradewind secrets give secretive`, .* its secrets B, C "):
        values.of(job("job_1", "A", "B", "C"))
    with pytest.raises(MissingSecret, match=r"^waits for `tradewind secrets give job_1`"):
        values.of(job("job_1", "A", "B"), lambda each: each.id)
    assert values.missing(job("job_1", "A")) is None


def test_there_is_a_bound_on_what_it_holds_and_a_value_of_many_jobs_counts_once(values: SecretValues) -> None:
    many = {f"job_{n}": {NAME: f"{n:0{MAX_CHARACTERS}}"} for n in range(MAX_TOTAL_CHARACTERS // MAX_CHARACTERS)}
    values.give(many)
    with pytest.raises(UsageError, match="too many secrets"):
        values.give({"job_x": {NAME: "x"}})
    assert values.missing(job("job_x")) is not None
    values.give({"job_y": many["job_1"]})
    assert values.missing(job("job_y")) is None


def test_reading_values_and_masking_text_never_wait_for_a_submitter(installation: Installation) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def keep(_given: Given) -> None:
        begun.set()
        assert go_on.wait(60)

    values = SecretValues(kept=lambda: {"job_1": {NAME: VALUE}}, keep=keep)
    giver = threading.Thread(target=values.give, args=({"job_2": {NAME: "another value"}},))
    giver.start()
    assert begun.wait(60)
    assert values.of(job()) == {NAME: VALUE}
    assert values.mask(VALUE) == f"[secret {NAME}]"
    values.forget(installation)
    go_on.set()
    giver.join()
    assert values.of(job("job_2")) == {NAME: "another value"}


def test_it_masks_the_values_of_all_jobs_that_it_knows(values: SecretValues) -> None:
    values.give({"job_1": {NAME: "first value"}, "job_2": {NAME: "second value", "OTHER": "third value"}})
    masked = values.mask("first value, second value, third value")
    assert masked == f"[secret {NAME}], [secret {NAME}], [secret OTHER]"


def test_values_are_forgotten_when_their_job_has_ended(installation: Installation, values: SecretValues) -> None:
    with installation.store.write() as tx:
        for job_id in ("job_1", "job_2"):
            tx.add_job(job(job_id))
        tx.set_job_state("job_1", "cancelled")
    values.give({job_id: {NAME: VALUE} for job_id in ("job_1", "job_2", "job_about_to_be_submitted")})
    values.forget(installation)
    missing = [values.missing(job(each)) is not None for each in ("job_1", "job_2", "job_about_to_be_submitted")]
    assert missing == [True, False, False]


def test_values_of_a_job_that_was_never_stored_are_dropped_after_the_stated_time(
    installation: Installation, clock: VirtualClock, values: SecretValues
) -> None:
    values.give({"job_1": {NAME: VALUE}, "job_2": {NAME: "another value"}})
    values.forget(installation)
    clock.advance(UNKNOWN_S - 1)
    with installation.store.write() as tx:
        tx.add_job(job("job_2"))
    values.forget(installation)
    assert values.missing(job("job_1")) is None
    clock.advance(1)
    values.forget(installation)
    assert values.missing(job("job_1")) is not None
    assert values.mask(VALUE) == VALUE  # nothing of it is held any more
    assert values.missing(job("job_2")) is None


def test_values_that_are_given_again_are_held_for_as_long_again(
    installation: Installation, clock: VirtualClock, values: SecretValues
) -> None:
    values.give({"job_1": {NAME: VALUE}})
    values.forget(installation)
    clock.advance(UNKNOWN_S)
    values.give({"job_1": {NAME: VALUE}})
    values.forget(installation)
    assert values.missing(job("job_1")) is None


# The socket


def test_values_go_over_a_private_socket_whatever_the_umask(folder: Path, values: SecretValues) -> None:
    before = os.umask(0)
    try:
        with SecretLine(folder, values, lambda _: None):
            assert (folder / SOCKET).stat().st_mode & 0o777 == 0o600
            assert hand_over(folder, {"job_1": {NAME: VALUE, "BYTES": "\udcff\n\"'"}})
    finally:
        os.umask(before)
    assert values.of(job("job_1", NAME, "BYTES")) == {NAME: VALUE, "BYTES": "\udcff\n\"'"}
    assert not (folder / SOCKET).exists()


def test_without_a_control_plane_nothing_listens(folder: Path) -> None:
    assert not hand_over(folder, {"job_1": {NAME: VALUE}})
    with socket.socket(socket.AF_UNIX) as dead:  # what a killed control plane leaves
        os.chdir(folder)
        dead.bind(SOCKET)
    assert not hand_over(folder, {"job_1": {NAME: VALUE}})


def test_the_socket_of_a_dead_control_plane_is_taken_over_and_that_of_a_successor_left_alone(
    folder: Path, values: SecretValues
) -> None:
    later = SecretValues()
    with SecretLine(folder, values, lambda _: None) as deposed, SecretLine(folder, later, lambda _: None):
        deposed.__exit__()
        assert hand_over(folder, {"job_1": {NAME: VALUE}})
    assert later.of(job()) == {NAME: VALUE}


@pytest.mark.parametrize(
    "message",
    [
        b"\n",
        b"[]\n",
        b'{"give": 5}\n',
        b'{"give": {"../x": {"A": "1"}}}\n',
        b'{"give": {"job_1": {"A=B": "1"}}}\n',
        b'{"give": {"job_1": {"A": 1}}}\n',
        b'{"give": {"job_1": {"A": "\\u0000"}}}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_an_invalid_message_is_refused_and_does_no_harm(
    line: SecretLine, folder: Path, values: SecretValues, message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(SOCKET)
        connection.sendall(message)
        assert b"not one of this version" in connection.recv(1000)
    assert hand_over(folder, {"job_1": {NAME: VALUE}})
    assert values.of(job()) == {NAME: VALUE}


def test_silent_connections_do_not_block_others_from_giving_secrets(
    folder: Path, values: SecretValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with ExitStack() as opened:
        opened.enter_context(SecretLine(folder, values, lambda _: None))
        for _ in range(50):
            silent = opened.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(SOCKET)
            silent.sendall(b'{"give"')
        assert hand_over(folder, {"job_1": {NAME: VALUE}})
    assert values.of(job()) == {NAME: VALUE}


@pytest.mark.parametrize("answer", [b"null\n", b"[]\n", b"{}\n", b"5\n", b"\xff\n", b""])
def test_an_invalid_answer_is_an_error_of_the_site(
    folder: Path, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    def listen(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(SOCKET)
        listener.listen()
        other = threading.Thread(target=listen, args=(listener,))
        other.start()
        with pytest.raises(SiteError, match="did not accept the secrets"):
            hand_over(folder, {"job_1": {NAME: VALUE}})
        other.join()


def test_more_than_a_message_may_hold_is_refused_by_the_giver(line: SecretLine, folder: Path) -> None:
    with pytest.raises(UsageError, match="more than 4 MiB"):
        hand_over(folder, {f"job_{number}": {NAME: "x" * MAX_CHARACTERS} for number in range(300)})


def test_a_value_that_is_too_long_is_refused_at_both_ends(
    line: SecretLine, folder: Path, values: SecretValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=f"{NAME} has {MAX_CHARACTERS + 1} characters") as caught:
        hand_over(folder, {"job_1": {NAME: "x" * (MAX_CHARACTERS + 1)}})
    assert "file" in caught.value.hint
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(SOCKET)
        connection.sendall(json.dumps({"give": {"job_1": {NAME: "x" * (MAX_CHARACTERS + 1)}}}).encode() + b"\n")
        assert b"not one of this version" in connection.recv(1000)
    assert values.missing(job()) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_can_neither_connect_nor_is_listened_to(line: SecretLine, folder: Path) -> None:
    for each in (folder, *folder.parents):
        if each.stat().st_mode & 0o005 != 0o005:
            each.chmod(0o755)
    stranger = (
        "import os, socket, sys; os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect('secrets.sock')\n"
        "print(s.recv(1000).decode())"
    )
    refused = subprocess.run([sys.executable, "-c", stranger, folder], capture_output=True, text=True, check=False)
    assert "PermissionError" in refused.stderr
    (folder / SOCKET).chmod(0o666)
    heard = subprocess.run([sys.executable, "-c", stranger, folder], capture_output=True, text=True, check=False)
    assert "belongs to another user" in heard.stdout


# What a user does


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(
        {"state_dir": str(tmp_path / "state"), "providers.local.hazard": False}, environ={}, cwd=tmp_path
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("def main(): pass\n")
    path = tmp_path / "job.yaml"
    path.write_text(f"name: secretive\ntrain: {{entry: 'train:main', steps: 1, secrets: [{NAME}]}}\n")
    return path


def test_submit_hands_over_what_its_own_environment_holds(
    config: Config, file: Path, values: SecretValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, VALUE)
    with Client(config) as client:
        plan = client.plans.create(file)
        with SecretLine(config.state_dir, values, lambda _: None):
            submitted = client.jobs.submit(plan)
    assert values.of(job(submitted.id)) == {NAME: VALUE}
    held = b"".join(path.read_bytes() for path in config.state_dir.rglob("*") if path.is_file())
    assert VALUE.encode() not in held


def test_a_job_that_was_submitted_before_the_control_plane_ran_is_given_its_secrets_later(
    config: Config, file: Path, values: SecretValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, VALUE)
    with Client(config) as client:
        submitted = client.jobs.submit(file)
        with pytest.raises(SiteError, match="no control plane") as caught:
            client.secrets.give(submitted.name)
        assert "tradewind up" in caught.value.hint
        with SecretLine(config.state_dir, values, lambda _: None):
            monkeypatch.setenv(NAME, "another")
            assert client.secrets.give("secretive").job_ids == (submitted.id,)
            assert values.of(job(submitted.id)) == {NAME: "another"}
            monkeypatch.setenv(NAME, "")  # as many CI systems do for a secret that they do not have
            with pytest.raises(UsageError, match=f"missing or empty .*{NAME}"):
                client.secrets.give("secretive")
            monkeypatch.delenv(NAME)
            with pytest.raises(UsageError, match=NAME):
                client.secrets.give("secretive")


def test_giving_secrets_to_a_job_that_names_none_is_refused(installation: Installation) -> None:
    with installation.store.write() as tx:
        plain = job()
        tx.add_job(replace(plain, spec=replace(plain.spec, train=replace(plain.spec.train, secrets=()))))
    with pytest.raises(UsageError, match="needs no secrets"):
        submission.give(installation, "secretive")


# The encrypted file


@pytest.fixture
def keeping(config: Config, tmp_path: Path) -> Config:
    config.state_dir.mkdir(mode=0o700)
    return replace(config, secrets=replace(config.secrets, key_file=tmp_path / "keys" / "secrets.key"))


def test_kept_secrets_survive_the_control_plane_and_tell_nothing_without_the_key(keeping: Config) -> None:
    before = os.umask(0)
    try:
        kept_secrets(keeping).give({"job_1": {NAME: VALUE}})
    finally:
        os.umask(before)
    key, file = keeping.secrets.key_file, keeping.state_dir / FILE
    assert key is not None
    assert [path.stat().st_mode & 0o777 for path in (key, file)] == [0o600, 0o600]
    assert VALUE.encode() not in file.read_bytes()
    assert NAME.encode() not in file.read_bytes()
    assert kept_secrets(keeping).of(job()) == {NAME: VALUE}


def test_a_wrong_key_or_a_damaged_file_is_a_named_error_and_nothing_is_overwritten(keeping: Config) -> None:
    kept_secrets(keeping).give({"job_1": {NAME: VALUE}})
    key, file = keeping.secrets.key_file, keeping.state_dir / FILE
    assert key is not None
    right, sealed = key.read_bytes(), file.read_bytes()
    key.write_bytes(Fernet.generate_key())
    with pytest.raises(StoreError, match="cannot be read with the key"):
        kept_secrets(keeping)
    key.write_bytes(b"no key")
    with pytest.raises(StoreError, match="cannot be used"):
        kept_secrets(keeping)
    key.write_bytes(right)
    file.write_bytes(sealed[:-9] + b"AAAA" + sealed[-5:])
    with pytest.raises(StoreError, match="cannot be read with the key"):
        kept_secrets(keeping)
    file.write_bytes(sealed)
    assert kept_secrets(keeping).of(job()) == {NAME: VALUE}


def test_a_key_that_others_can_read_or_that_is_next_to_the_file_is_refused(keeping: Config) -> None:
    kept_secrets(keeping)
    key = keeping.secrets.key_file
    assert key is not None
    key.chmod(0o640)
    with pytest.raises(UsageError, match="others can read"):
        kept_secrets(keeping)
    (reported,) = [check for check in examine(keeping).checks if check.name == "secrets"]
    assert (reported.state, reported.fix) == ("fail", f"chown it to this user, then: chmod 600 {key}")
    inside = replace(keeping, secrets=replace(keeping.secrets, key_file=keeping.state_dir / "key"))
    with pytest.raises(UsageError, match="in the state folder") as caught:
        kept_secrets(inside)
    (reported,) = [check for check in examine(inside).checks if check.name == "secrets"]
    assert (reported.state, reported.found, reported.fix) == ("fail", str(caught.value), caught.value.hint)
    assert inside.secrets.key_file is not None
    assert not inside.secrets.key_file.exists()


def test_who_stood_by_has_the_secrets_that_were_given_meanwhile_and_loses_none_when_it_is_given_more(
    keeping: Config,
) -> None:
    leading, standing_by = kept_secrets(keeping), kept_secrets(keeping)
    leading.give({"job_1": {NAME: VALUE}})
    standing_by.read_kept()
    assert standing_by.of(job()) == {NAME: VALUE}
    leading.give({"job_2": {NAME: "another value"}})
    standing_by.give({"job_3": {NAME: "a third value"}})
    assert kept_secrets(keeping).of(job("job_2")) == {NAME: "another value"}
