"""Access is lent to a machine, sealed to its key, and renewed while it lives."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import Lender
from orchestrator.nodes.access.machine_access import BorrowedAccess
from orchestrator.nodes.access.scope import Scope
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.server import Fault
from tests.unit.nodes.access.conftest import AT_ONCE, TOKEN, Guarded, Machine, now, on
from tests.unit.nodes.conftest import until
from trainers.errors import StoreDenied
from trainers.objects.credentials import BEARER
from trainers.objects.opening import open_store


def test_access_is_sealed_to_the_machine_and_renewed_when_half_of_it_is_over(
    guarded: Guarded, machine: Machine
) -> None:
    machine.lend()
    first = machine.sealed() or b""
    assert not any(secret.encode() in first for secret in guarded.cloud.secrets())
    assert machine.access.take(first)
    before = machine.access.credentials().values
    machine.now_s = guarded.lasts_s / 2 - 60
    machine.lend()
    assert machine.sealed() == first
    machine.now_s = guarded.lasts_s / 2 + 1
    machine.lend()
    machine.access.refresh(machine.sealed)
    assert machine.sealed() != first
    if not isinstance(guarded.cloud, GuardedBlob):  # its signatures name whole seconds
        assert machine.access.credentials().values != before


@on("s3")
def test_a_machine_looks_for_newer_access_some_times_in_its_life_only(machine: Machine) -> None:
    looked = []
    machine.lend()
    machine.access.take(machine.sealed() or b"")

    def look() -> bytes | None:
        looked.append(machine.now_s)
        return machine.sealed()

    for hour in range(0, 12):
        for minute in range(0, 60, 10):
            machine.now_s = hour * 3600.0 + minute * 60
            machine.access.refresh(look)
    assert len(looked) == 11


def test_access_of_another_machine_is_not_taken(machine: Machine) -> None:
    machine.lend()
    with pytest.raises(SiteError):
        BorrowedAccess(sealing.new_key(), TOKEN, {}).take(machine.sealed() or b"")
    with pytest.raises(SiteError):
        BorrowedAccess(machine.key, "launch-2", {}).take(machine.sealed() or b"")


def test_a_refusal_is_reported_and_a_failure_tried_again(guarded: Guarded, machine: Machine) -> None:
    guarded.server.faults.append(Fault(lambda _: True, lost=True))
    machine.lend()
    assert machine.lender.refused(TOKEN) is None
    guarded.refuse_to_issue()
    machine.now_s = 1.1
    machine.lend()
    assert "machines.share_credentials" in (machine.lender.refused(TOKEN) or "")
    guarded.refuse_to_issue(False)
    machine.now_s = 60.0
    machine.lend()
    assert machine.lender.refused(TOKEN) is None
    assert machine.sealed() is not None


def test_a_machine_of_this_host_is_lent_nothing(guarded: Guarded) -> None:
    machine = Machine(guarded, None)
    machine.lend()
    assert machine.sealed() is None
    assert not machine.lender._due()


def test_the_lenders_thread_does_the_same(machine: Machine) -> None:
    machine.lender.lend(TOKEN, sealing.public_half(machine.key))
    until("access is written", lambda: machine.sealed() is not None)
    machine.lender.close()


def test_the_jobs_program_gets_the_newest_from_an_endpoint_of_its_machine(
    guarded: Guarded, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.lend()
    machine.access.take(machine.sealed() or b"")
    variables = machine.access.variables()
    secrets = [*machine.access.credentials().values.values(), *guarded.cloud.secrets()]
    assert not any(secret in value for value in variables.values() for secret in secrets)
    for name in (BEARER, "AZURE_STORAGE_ACCOUNT_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"{guarded.root}/checkpoints/job-1", AT_ONCE)
    store.put("a", b"1")
    assert store.keys() == ["a"]
    with pytest.raises(StoreDenied):
        open_store(f"{guarded.root}/checkpoints/job-2", AT_ONCE).put("a", b"1")
    endpoint = "AWS_CONTAINER_CREDENTIALS_FULL_URI" if guarded.root.startswith("s3:") else "TRADEWIND_ACCESS_URI"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(variables[endpoint])


def test_a_machine_that_needs_no_access_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    asked = list[str]()

    def scope_of(token: str) -> Scope | None:
        asked.append(token)
        return None

    lender = Lender(open_store(str(tmp_path), AT_ONCE), Issuer(now), scope_of)
    for token in ("first", "second"):
        lender.lend(token, sealing.public_half(sealing.new_key()))
        until(f"{token} was served", lambda token=token: token in asked)  # type: ignore[misc]
        until("its thread waits or is gone", lambda: lender._thread is None or not lender._wake.is_set())
    lender.close()
