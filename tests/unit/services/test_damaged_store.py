"""Damage anywhere in the store's file: every command works or says by name what is wrong and the way out, and the way
out is open: `store restore` works whatever was damaged.

Six kinds of damage fall on a sample of the pages of a small store, each kind on others; with STRIDE 1 on all.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.client import Client
from orchestrator.config import Config, load_config
from orchestrator.errors import RowError, StoreDamagedError, TradewindError, UnreadableRowError
from orchestrator.installation import open_installation
from orchestrator.services.views import Check
from orchestrator.store import Store
from orchestrator.store.backends.files import JOURNALS
from providers.clock import SystemClock
from tests.unit.services.recorded_history import record

PAGE = 4096
STRIDE = 6
DAMAGE: dict[str, Callable[[bytearray, int], bytes]] = {}


def damage(kind: Callable[[bytearray, int], bytes]) -> Callable[[bytearray, int], bytes]:
    DAMAGE[kind.__name__] = kind
    return kind


@damage
def two_bytes_of_the_header_zeroed(whole: bytearray, page: int) -> bytes:
    at = page * PAGE + (100 if page == 0 else 0) + 3  # the number of cells
    whole[at : at + 2] = bytes(2)
    return bytes(whole)


@damage
def two_bytes_of_the_content_zeroed(whole: bytearray, page: int) -> bytes:
    """Of the first bytes of rows, which hold the types of their columns."""
    at = (page + 1) * PAGE - 1 - 40 * (1 + page % 7)
    whole[at : at + 2] = bytes(2)
    return bytes(whole)


@damage
def page_zeroed(whole: bytearray, page: int) -> bytes:
    whole[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    return bytes(whole)


@damage
def bits_flipped(whole: bytearray, page: int) -> bytes:
    for at in range(page * PAGE + 7, (page + 1) * PAGE, 149):
        whole[at] ^= 1 << at % 8
    return bytes(whole)


@damage
def cut_off(whole: bytearray, page: int) -> bytes:
    return bytes(whole[: page * PAGE + PAGE // 2])


@damage
def swapped_with_the_next(whole: bytearray, page: int) -> bytes:
    this, following = (slice(n * PAGE, (n + 1) * PAGE) for n in (page, (page + 1) % (len(whole) // PAGE)))
    whole[this], whole[following] = whole[following], whole[this]
    return bytes(whole)


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a backup of it."""
    folder = tmp_path_factory.mktemp("sound") / "state"
    with closing(
        open_installation(load_config({"state_dir": str(folder), "providers.enabled": "fake"}, environ={}))
    ) as installation:
        record(installation)
        installation.store.backup(folder / "backup.db")
    with closing(sqlite3.connect(folder / "tradewind.db")) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    return folder


@pytest.fixture
def config(sound: Path, tmp_path: Path) -> Config:
    state = shutil.copytree(sound, tmp_path / "state")
    return load_config({"state_dir": str(state), "providers.enabled": "fake"}, environ={}, cwd=tmp_path)


def led(folder: Path) -> bytes:
    """The store, led by this process: `up` finds a control plane and starts none."""
    url = f"sqlite:///{folder / 'led.db'}"
    shutil.copy(folder / "tradewind.db", folder / "led.db")
    with closing(sqlite3.connect(folder / "led.db")) as connection:
        connection.execute("UPDATE leader SET holder = NULL")
        connection.commit()
    with closing(Store.open(url, SystemClock(), create=False)) as store:
        assert store.campaign("this test") is not None
    with closing(sqlite3.connect(folder / "led.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return (folder / "led.db").read_bytes()


def remedied(checks: tuple[Check, ...]) -> None:
    assert all(each.fix for each in checks if each.state == "fail"), checks


COMMANDS: dict[str, Callable[[Client], object]] = {
    "store check": lambda client: remedied(client.store.check().checks),
    "doctor": lambda client: remedied(client.system.doctor().checks),
    "up": lambda client: client.control_plane.up(),
    "queue": lambda client: client.jobs.list(ended=True),
    "report": lambda client: client.reports.get(),
    "explain": lambda client: client.jobs.explain("gpt"),
}


def ruin(file: Path, content: bytes) -> None:
    for journal in JOURNALS:
        file.with_name(file.name + journal).unlink(missing_ok=True)
    file.write_bytes(content)


def works_or_names_what_is_wrong(config: Config, command: str) -> None:
    said = None
    try:
        with Client(config) as client:
            COMMANDS[command](client)
    except TradewindError as error:
        said = error
    assert said is None or said.hint, f"{command}: {said!r} without a hint"


def restores(config: Config) -> None:
    folder = config.state_dir
    with Client(config) as client:
        client.store.restore(folder / "backup.db")
        assert len(client.jobs.list(ended=True).jobs) == 3
    for each in folder.glob("tradewind.db.replaced*"):
        each.unlink()


@pytest.mark.parametrize("kind", DAMAGE)
def test_whatever_page_is_damaged_commands_say_so_and_restore_works(config: Config, kind: str) -> None:
    file = config.state_dir / "tradewind.db"
    pristine, with_leader = file.read_bytes(), led(config.state_dir)
    names, turn = list(COMMANDS), list(DAMAGE).index(kind)
    for page in range(turn % STRIDE, len(pristine) // PAGE, STRIDE):
        command = names[(page // STRIDE + turn) % len(names)]
        ruin(file, DAMAGE[kind](bytearray(with_leader if command == "up" else pristine), page))
        works_or_names_what_is_wrong(config, command)
        ruin(file, DAMAGE[kind](bytearray(pristine), page))
        restores(config)


ROWS = {
    "no identity": "DELETE FROM meta",
    "an identity that is none": "UPDATE meta SET value = char(0, 7) WHERE key = 'install_id'",
    "no leader": "DELETE FROM leader",
    "a leader without a number": "UPDATE leader SET holder = 'x', pid = NULL",
    "no revision": "DELETE FROM schema_revision",
    "a revision that never was": "UPDATE schema_revision SET version_num = '20200101_0000_aaaaaa'",
    "a revision that is none": "UPDATE schema_revision SET version_num = x'00ff'",
    "no table of revisions": "DROP TABLE schema_revision",
    "no table of jobs": "DROP TABLE job",
    "a state that is none": "UPDATE job SET state = 'asleep'",
    "a spec that is no JSON": "UPDATE job SET spec = '{\"schema\"'",
    "a spec of bytes": "UPDATE job SET spec = x'ff00'",
    "text that is no UTF-8": "UPDATE job SET owner = CAST(x'ff' AS TEXT)",
    "an instant that is none": "UPDATE run SET created_at_ms = 'noon'",
    "a step that is none": "UPDATE migration SET step = 'dance'",
    "events without data": "DROP TRIGGER event_refuses_update; UPDATE event SET data = '[]'",
    "entries of no kind": "DROP TRIGGER ledger_entry_refuses_update; UPDATE ledger_entry SET kind = 'x'",
    "prices of text": "DROP TRIGGER price_point_refuses_update; UPDATE price_point SET nano_usd_per_hour = 'x'",
    "newest prices of text": "UPDATE price_now SET nano_usd_per_hour = 'x'",
    "an offer of another kind": "UPDATE offer SET capacity_type = 'stolen'",
    "placements of noise": "UPDATE plan_placement SET document = x'ff00'",
    "inputs of noise": "DROP TRIGGER comparison_refuses_update; UPDATE comparison SET inputs = 'ff00'",
    "a speed that is none": "UPDATE perf_point SET steps_per_s = 'fast'",
}


@pytest.mark.parametrize("what", ROWS)
def test_rows_that_make_no_sense_are_named_and_restore_works(config: Config, what: str) -> None:
    file = config.state_dir / "tradewind.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"PRAGMA foreign_keys = OFF; {ROWS[what]}")
        connection.commit()
    for command in COMMANDS.keys() - {"up"}:
        works_or_names_what_is_wrong(config, command)
    with Client(config) as client:
        assert client.store.check().failed or client.system.doctor().failed or tells_damage(client.reports.get), what
    restores(config)


def tells_damage(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except StoreDamagedError as error:
        return bool(error.hint)
    return False


def test_one_row_that_cannot_be_read_is_left_out_of_a_list_and_heard_of(config: Config) -> None:
    with closing(sqlite3.connect(config.state_dir / "tradewind.db")) as connection:
        connection.execute("UPDATE job SET state = 'asleep' WHERE name = 'conv'")
        connection.commit()
    heard: list[tuple[str, RowError]] = []
    with closing(Store.open(config.store_url, SystemClock(), create=False)) as store, store.read() as tx:
        assert [job.name for job in tx.jobs(unreadable=lambda *reported: heard.append(reported))] == ["gpt", "lstm"]
        ((job_id, error),) = heard
        assert isinstance(error, UnreadableRowError)
        assert (error.table, error.key) == ("job", job_id)
        assert "state: invalid enum value 'asleep'" in str(error)
        with pytest.raises(UnreadableRowError):
            tx.jobs()
