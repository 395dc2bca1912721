"""Orders are written beside their caller, in turn for each machine, and again until they are written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.engine.calls import Pending, Place, Threads
from orchestrator.engine.orders import RETRY_S, TROUBLE_S, NotRead, Orders
from orchestrator.errors import SiteError
from orchestrator.formats.codec import dumps
from orchestrator.nodes.channel import Channel, DamagedOrder, raise_epoch
from orchestrator.nodes.messages import Order, RunOrder
from trainers.errors import StoreUnavailable
from trainers.objects.folder import FolderStore

RUN = RunOrder("run-1", "/runs/run-1")


class ByHand(Threads):
    """Makes the calls when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[[], object], Pending]] = []

    def carry(self, _key: str, _place: Place, call: Callable[[], object]) -> Pending:
        pending = Pending()
        self.calls.append((call, pending))
        return pending

    def work(self) -> None:
        while self.calls:
            call, pending = self.calls.pop(0)
            pending.run(call)
            assert pending.error is None


class Desk:
    """Orders in a folder, written when `work` is called, and a clock."""

    def __init__(self, folder: Path, epoch: int = 1) -> None:
        self.now_s, self.written, self.threads = 0.0, list[str](), ByHand()
        self.store = FolderStore(folder)
        self.orders = Orders(self.store, 60.0, self.written.append, self.threads, lambda: self.now_s)
        self.orders.lead(epoch)

    def read(self, token: str) -> None:
        with pytest.raises(NotRead):
            self.orders.wanted(token)
        self.threads.work()

    def ordered(self, token: str) -> Order | None:
        return Channel(self.store, token).order()[0]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_is_wanted_counts_at_once_and_is_written_later(desk: Desk) -> None:
    desk.read("m")
    desk.orders.change("m", lambda _: RUN)
    assert desk.orders.wanted("m") == (RUN, 1)
    assert desk.ordered("m") is None
    assert not desk.orders.idle
    desk.threads.work()
    assert desk.ordered("m") == Order(1, 60.0, RUN, 1)
    assert desk.orders.idle
    assert desk.written == ["m"]


def test_changes_that_come_while_one_is_written_are_written_after_it(desk: Desk) -> None:
    desk.read("m")
    late = RunOrder("run-2", "/runs/run-2")
    steps: list[str] = []
    desk.orders.change("m", lambda _: RUN, [lambda _: desk.orders.change("m", lambda _: late)])
    desk.orders.change("m", lambda run: run, [lambda _: steps.append("before the first order")])
    desk.threads.work()
    assert desk.ordered("m") == Order(2, 60.0, late, 1)
    assert steps == ["before the first order"]


def test_a_machine_whose_order_hangs_does_not_hold_up_another_ones(tmp_path: Path) -> None:
    hang, written = threading.Event(), threading.Event()
    orders = Orders(FolderStore(tmp_path), 60.0, lambda _: written.set(), Threads(4))
    for token in ("m", "n"):
        while True:
            try:
                orders.wanted(token)
            except NotRead:
                continue
            break
    try:
        orders.change("m", lambda _: RUN, [lambda _: hang.wait()])  # type: ignore[func-returns-value, arg-type]
        orders.change("n", lambda _: RUN)
        assert written.wait(60)
        assert Channel(FolderStore(tmp_path), "m").order()[0] is None
    finally:
        hang.set()


def test_an_order_that_cannot_be_written_is_tried_again_and_reported_if_that_lasts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.read("m")
    with monkeypatch.context() as down:

        def refuse(*_: object) -> bool:
            raise StoreUnavailable("the bucket is read-only")

        down.setattr(FolderStore, "put_if_absent", refuse)
        desk.orders.change("m", lambda _: RUN)
        for _ in range(int(TROUBLE_S / RETRY_S) + 1):
            desk.threads.work()
            assert desk.orders.unwritten("m") is None or desk.now_s >= TROUBLE_S
            desk.now_s += RETRY_S
        trouble = desk.orders.unwritten("m")
        assert trouble is not None
        assert "read-only" in str(trouble)
    desk.threads.work()
    assert desk.ordered("m") == Order(1, 60.0, RUN, 1)
    assert desk.orders.unwritten("m") is None


def test_an_answer_that_was_lost_is_no_second_order(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.read("m")
    honest = FolderStore.put_if_absent
    with monkeypatch.context() as lossy:

        def lose(self: FolderStore, key: str, data: bytes) -> bool:
            honest(self, key, data)
            raise StoreUnavailable("no answer")

        lossy.setattr(FolderStore, "put_if_absent", lose)
        desk.orders.change("m", lambda _: RUN)
        desk.threads.work()
    desk.now_s += RETRY_S
    desk.orders.wanted("m")
    desk.threads.work()
    assert desk.ordered("m") == Order(1, 60.0, RUN, 1)
    assert desk.orders.idle


def test_a_leader_that_was_replaced_writes_nothing_more(desk: Desk, tmp_path: Path) -> None:
    desk.read("m")
    desk.orders.change("m", lambda _: RUN)
    desk.threads.work()
    successor = Desk(tmp_path, epoch=2)
    successor.read("m")
    for _ in range(3):
        desk.orders.change("m", lambda _: None)
        desk.threads.work()
        desk.now_s += TROUBLE_S
    assert desk.ordered("m") == Order(2, 60.0, RUN, 2)
    assert "a later control plane" in str(desk.orders.unwritten("m"))


def test_a_damaged_order_is_an_error_for_its_machine_alone(desk: Desk) -> None:
    desk.store.put("m/order", b"{")
    desk.read("m")
    desk.read("n")
    with pytest.raises(SiteError, match="is damaged"):
        desk.orders.wanted("m")
    assert desk.orders.wanted("n") == (None, 0)


def test_a_control_plane_on_a_store_from_a_backup_writes_nothing_and_learns_which_epoch_it_must_pass(
    tmp_path: Path,
) -> None:
    """Its epoch is lower than that of the machine's order. So it must lead again, beyond it, before it can stop it."""
    before = Desk(tmp_path, epoch=7)
    before.read("m")
    before.orders.change("m", lambda _: RUN)
    before.threads.work()
    assert before.orders.outranked_by is None
    restored = Desk(tmp_path, epoch=3)
    restored.read("m")
    with pytest.raises(SiteError, match="a later control plane"):
        restored.orders.wanted("m")
    assert restored.orders.outranked_by == 7
    assert restored.ordered("m") == Order(1, 60.0, RUN, 7)
    restored.orders.lead(8)
    assert restored.orders.outranked_by is None
    restored.read("m")
    restored.orders.change("m", lambda _: None)
    restored.threads.work()
    assert restored.ordered("m") == Order(3, 60.0, None, 8)


def test_the_epoch_on_record_never_falls(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    assert [raise_epoch(store, epoch) for epoch in (2, 5, 3, 6)] == [2, 5, 5, 6]


def test_an_order_that_a_machine_wrote_for_itself_concerns_that_machine_alone(desk: Desk) -> None:
    """Its access to the store covers its own orders, and an epoch beyond all others would depose its control plane."""
    desk.store.put("m/order", dumps(Order(9, 60.0, None, 2**40)).encode())
    desk.read("m")
    desk.read("n")
    assert desk.orders.outranked_by is None
    with pytest.raises(DamagedOrder):
        desk.orders.wanted("m")
    assert desk.orders.wanted("n") == (None, 0)


def test_an_order_whose_writer_breaks_is_tried_again(desk: Desk) -> None:
    """A library in another language may raise what is no Exception."""

    def panic(_: Channel) -> None:
        if not desk.written:
            desk.written.append("panicked")
            raise Panic

    desk.read("m")
    desk.orders.change("m", lambda _: RUN, [panic])
    desk.threads.work()
    assert desk.ordered("m") is None
    desk.now_s += RETRY_S
    desk.orders.wanted("m")
    desk.threads.work()
    assert desk.ordered("m") == Order(1, 60.0, RUN, 1)


class Panic(BaseException):
    """As pyo3 raises it for a panic in Rust."""
