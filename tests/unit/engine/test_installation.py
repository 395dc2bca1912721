"""The market clock of a state folder: shared by all who open it, and moved by nobody in passing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.errors import SpecError, StoreError
from orchestrator.installation import Installation, anchored_clock, open_installation
from orchestrator.model import Event, Job, JobSpec, Run, TrainSpec
from orchestrator.store import Store
from orchestrator.store.leadership import leader
from providers.base import LaunchSpec
from providers.clock import AcceleratedClock, SystemClock
from tests.disks import mounted

TRAIN = TrainSpec(entry="m:f", script=None, args={}, workdir="/", env={}, secrets=(), steps=9, epochs=None)
Configured = Callable[..., Config]


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    def make(factor: float, **overrides: object) -> Config:
        given = {"state_dir": str(tmp_path / "state"), "providers.local.hazard": False, **overrides}
        return load_config(given | {"providers.local.clock_factor": factor}, cwd=tmp_path, environ={})

    return make


def anchor(config: Config) -> str:
    return (config.state_dir / "clock.json").read_text()


def refused(config: Config, *, starts: bool) -> SpecError:
    before = anchor(config)
    with pytest.raises(SpecError) as caught:
        open_installation(config, starts=starts)
    assert anchor(config) == before
    return caught.value


def test_a_command_with_another_clock_factor_is_refused_and_changes_nothing(configured: Configured) -> None:
    open_installation(configured(600.0)).close()
    error = refused(configured(100_000.0), starts=False)
    assert error.exit_code == 3
    (problem,) = error.problems
    assert problem.path == "command line"
    assert problem.field == "providers.local.clock_factor"
    assert "100000" in problem.message
    assert "runs at 600," in problem.message
    assert "tradewind down" in problem.hint
    assert "tradewind up" in problem.hint


def test_where_nothing_acts_the_control_plane_may_change_the_factor_and_time_continues(configured: Configured) -> None:
    first = open_installation(configured(600.0))
    first.close()
    before_ms = first.clock.now_ms()
    second = open_installation(configured(60.0), starts=True)
    second.close()
    assert isinstance(second.clock, AcceleratedClock)
    assert second.clock.factor == 60.0
    assert before_ms <= second.clock.epoch_ms <= first.clock.now_ms()
    again = open_installation(configured(60.0))
    again.close()
    assert again.clock == second.clock


def test_a_leader_keeps_its_clock(configured: Configured) -> None:
    installation = open_installation(configured(600.0))
    leadership = installation.store.campaign("a control plane")
    assert leadership is not None
    refused(configured(60.0), starts=True)
    installation.store.resign(leadership)
    installation.close()
    open_installation(configured(60.0), starts=True).close()


def test_a_machine_keeps_the_clock_that_it_is_billed_by(configured: Configured) -> None:
    installation = open_installation(configured(600.0))
    local = installation.providers["local"]
    offer = next(offer for offer in local.offers() if not offer.spot)
    tags = {"tradewind-install": installation.store.install_id}
    (instance_id,) = local.launch(LaunchSpec("token", offer.id, "exec sleep 600\n", tags))
    try:
        refused(configured(60.0), starts=True)
    finally:
        local.terminate(instance_id)
        installation.close()
    open_installation(configured(60.0), starts=True).close()


def test_a_leader_from_before_a_reboot_keeps_nothing(configured: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "TAKEOVER_S", 0.1)
    monkeypatch.setattr(leader, "_WATCH_S", 0.05)
    installation = open_installation(configured(600.0))
    installation.store.campaign("a control plane")
    installation.close()
    with closing(sqlite3.connect(installation.state_dir / "tradewind.db")) as connection:
        connection.execute("UPDATE leader SET realm = 'another boot'")
        connection.commit()
    started = open_installation(configured(60.0), starts=True)
    started.close()
    assert started.clock.factor == 60.0


def reboot(config: Config, *, wall_behind_ms: int) -> None:
    """The machine restarts: monotonic time starts from zero, and the wall clock may be behind where it was."""
    path = config.state_dir / "clock.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"boot_id": "before", "wall_ms": saved["wall_ms"] + wall_behind_ms}))


@pytest.mark.parametrize("file", ["whole", "lost", "garbage", '{"boot_id": "before", "factor": "fast"}'])
def test_after_a_reboot_with_the_wall_clock_behind_market_time_continues_from_the_latest_on_record(
    configured: Configured, file: str
) -> None:
    config = configured(600.0)
    installation = open_installation(config)
    later_ms = (
        installation.clock.now_ms() + 2 * 3_600_000
    )  # two hours of market time, of which the clock's file knows nothing
    with installation.store.write() as tx:
        tx.add_event(Event("ev-1", later_ms, "run.training", "it trains", "control-plane"))
    installation.close()
    reboot(config, wall_behind_ms=7_200_000)
    if file == "lost":
        (config.state_dir / "clock.json").unlink()
    elif file != "whole":
        (config.state_dir / "clock.json").write_text(file)
    again = open_installation(config)
    again.close()
    assert again.clock.now_ms() >= later_ms


def test_a_poll_of_the_market_is_a_record_of_its_time_and_one_of_real_prices_is_not(configured: Configured) -> None:
    config = configured(600.0)
    installation = open_installation(config)
    later_ms = installation.clock.now_ms() + 3_600_000
    with installation.store.write() as tx:
        tx.record_poll("local", later_ms, later_ms + 5, 1, 0, None)
        tx.record_poll("aws", later_ms, later_ms + 86_400_000, 1, 0, None)
        assert tx.latest_ms(config.providers.enabled) == later_ms + 5
    installation.close()


def opened_at(tmp_path: Path, root: str, **options: bool) -> Installation:
    config = load_config({"state_dir": str(tmp_path / "state"), "store_root": root}, cwd=tmp_path, environ={})
    return open_installation(config, **options)


def test_store_root_may_change_and_what_it_was_is_remembered(tmp_path: Path) -> None:
    one, two, three = (str(tmp_path / name) for name in ("one", "two", "three"))
    opened_at(tmp_path, one, starts=True).close()
    with closing(opened_at(tmp_path, two)) as installation, installation.store.read() as tx:
        before_ms = installation.clock.now_ms()
        assert installation.former_root(tx, before_ms) == one, "the control plane has not been started since"
    opened_at(tmp_path, two, starts=True).close()
    with closing(opened_at(tmp_path, two)) as installation, installation.store.read() as tx:
        assert installation.former_root(tx, before_ms) == one
        now_ms = installation.clock.now_ms()
        assert installation.former_root(tx, now_ms) is None
    opened_at(tmp_path, three, starts=True).close()
    with closing(opened_at(tmp_path, three)) as installation, installation.store.read() as tx:
        assert [installation.former_root(tx, at_ms) for at_ms in (before_ms, now_ms)] == [one, two]
    with closing(opened_at(tmp_path, one, starts=True)) as installation, installation.store.read() as tx:
        assert [installation.former_root(tx, at_ms) for at_ms in (before_ms, now_ms)] == [None, two]


@pytest.mark.parametrize("used_by", ["machines", "a control plane"])
def test_store_root_cannot_change_while_orders_are_given_there(tmp_path: Path, used_by: str) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with closing(opened_at(tmp_path, one, starts=True)) as installation:
        leadership = None if used_by == "machines" else installation.store.campaign("other/1")
        if leadership is None:
            with installation.store.write() as tx:
                tx.add_job(Job("job_A", JobSpec("j", TRAIN), "ann", 1, "running"))
                tx.add_run(Run("run_A", "job_A", 1, "local/r/r-1/m/spot", "i-1", "training", 1))
        with pytest.raises(SpecError, match=f"store_root.*is {two}, but .* still use {one}") as caught:
            opened_at(tmp_path, two, starts=True)
        assert ("machines of j" if leadership is None else "control plane") in str(caught.value)
        assert "tradewind down" in str(caught.value)
        opened_at(tmp_path, two).close()  # looking is allowed
        if leadership is None:
            with installation.store.write() as tx:
                tx.update_run("run_A", state="ended", end="paused")
        else:
            installation.store.resign(leadership)
    opened_at(tmp_path, two, starts=True).close()


def test_a_store_root_that_cannot_be_written_is_refused_by_name_and_not_remembered(tmp_path: Path) -> None:
    def opened(root: Path) -> Installation:
        given = {"state_dir": str(tmp_path / "state"), "store_root": str(root)}
        return open_installation(load_config(given, cwd=tmp_path, environ={}), starts=True)

    (tmp_path / "sealed").mkdir()
    with mounted(tmp_path / "sealed", "ro") as sealed:
        with pytest.raises(StoreError, match=r"store_root cannot be written: .*sealed.*Read-only") as caught:
            opened(sealed)
        assert "set store_root" in caught.value.hint
    url = f"sqlite:///{tmp_path}/state/tradewind.db"
    with closing(Store.open(url, SystemClock())) as store, store.write() as tx:
        tx.add_job(Job("job_A", JobSpec("j", TRAIN), "ann", 1, "queued"))
    opened(tmp_path / "root").close()  # the job has nothing in the other one


@pytest.mark.parametrize("left", [b"", b"\xff\xfe"], ids=["emptied", "not text"])
def test_a_damaged_record_of_the_former_store_root_holds_up_no_start_for_ever(tmp_path: Path, left: bytes) -> None:
    state = tmp_path / "state"

    def opened() -> Installation:
        return open_installation(load_config({"state_dir": str(state)}, cwd=tmp_path, environ={}), starts=True)

    with closing(opened()) as installation, installation.store.write() as tx:
        tx.add_job(Job("job_A", JobSpec("j", TRAIN), "ann", 1, "paused"))
    (state / "store-root").write_bytes(left)
    if left:
        with pytest.raises(StoreError, match="store-root is damaged: it is not text") as caught:
            opened()
        assert "delete it" in caught.value.hint
        (state / "store-root").unlink()
    opened().close()
    assert (state / "store-root").read_text() == str(state)


def test_a_disk_that_is_too_full_for_the_market_clock_is_named_and_no_part_of_it_stays(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=16k"):
        with suppress(OSError), open(tmp_path / "other", "wb") as other:
            while True:
                other.write(bytes(4096))
        with pytest.raises(StoreError, match=r"clock\.json cannot be written: No space left on device") as refused:
            anchored_clock(tmp_path / "clock.json", 60.0)
        assert refused.value.hint.startswith("free some space")
        assert [each.name for each in tmp_path.iterdir()] == ["other"]
        (tmp_path / "other").unlink()
        assert anchored_clock(tmp_path / "clock.json", 60.0).factor == 60.0
