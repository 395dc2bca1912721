"""Several ranks write one checkpoint beside the training: it is committed when all parts are durable, or not at all.

Ranks are threads here, the processes that write for them are real.
"""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.unit.trainers.gang import Gang
from tests.unit.trainers.test_background import until
from tests.unit.trainers.test_together import Connected, state
from trainers.checkpoint import parts, store
from trainers.checkpoint.background import Background, Snapshot
from trainers.checkpoint.background_process import Settings
from trainers.checkpoint.background_together import COMMITTED, BackgroundTogether
from trainers.checkpoint.manifest import Box, ManifestName
from trainers.checkpoint.reader import load
from trainers.checkpoint.together import save_together
from trainers.errors import StoreUnavailable

RANKS, JOB = 3, "job"


class Ranks:
    """All ranks of a run, each with its process."""

    def __init__(self, folder):
        self.root, self.generation = str(folder), 1
        barrier, said = threading.Barrier(RANKS, timeout=60), [b""] * RANKS
        self.peers = [Connected(rank, said, barrier) for rank in range(RANKS)]
        self.own = [
            Background(Settings(self.root, JOB, 5, str(folder / "control"), (1.0, 1.0, 1), rank, RANKS))
            for rank in range(RANKS)
        ]
        self.all = [BackgroundTogether(own, peers) for own, peers in zip(self.own, self.peers, strict=True)]
        self.pool = ThreadPoolExecutor(RANKS)

    def together(self, act):
        """What it returns on each rank."""
        return list(self.pool.map(act, range(RANKS)))

    def begin(self, step, items=state):
        name = ManifestName(self.generation, step, 1)
        found = self.together(
            lambda rank: self.all[rank].begin(name, lambda: Snapshot(items(rank), {"steps_done": step}))
        )
        assert len({*found}) == 1, "all or none"
        return found[0]

    def begun(self, step, items=state):
        return until(lambda: self.begin(step, items) or not self.all[0].possible) and self.all[0].possible

    def over(self):
        return max(self.together(lambda rank: self.all[rank].over()))

    def ended(self):
        """As a session does it: when one rank knows, all ask."""
        until(self.over)
        return [one for (one,) in self.together(lambda rank: self.all[rank].ended())]

    def process(self, rank):
        assert self.own[rank]._process is not None
        return self.own[rank]._process

    @property
    def committed(self):
        return [name.step for name in store.manifests(self.root, JOB)]

    def left(self):
        return store.job_store(self.root, JOB).keys(parts.PARTS)


@pytest.fixture
def ranks(tmp_path):
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    found = Ranks(tmp_path)
    yield found
    for each in found.all:
        each.close()
    found.pool.shutdown()


def test_it_is_what_the_ranks_would_have_written_at_once(ranks, tmp_path):
    assert ranks.begun(3)
    assert {str(each.name) for each in ranks.ended()} == {"1-3-1"}
    assert ranks.left() == []
    at_once = tmp_path / "at once"
    store.prepare(at_once, JOB)
    store.write_fence(at_once, JOB, 1, None)
    name = ManifestName(1, 3, 1)

    def save(rank):
        peers = ranks.peers[rank]
        position = {"steps_done": 3}
        return save_together(
            at_once, JOB, name, peers=peers, items=state(rank), position=position, keep=5, before_commit=lambda: None
        )

    assert ranks.together(save) == [name] * RANKS
    assert store.verify(ranks.root, JOB, name) == store.verify(at_once, JOB, name)


def test_each_rank_copies_only_what_it_writes(ranks):
    large = {"model": {f"layer{number}": torch.rand(500_000) for number in range(RANKS)}}
    assert ranks.begun(1, lambda rank: large)
    ranks.ended()
    memories = [own._memory.size for own in ranks.own]
    assert max(memories) < 2 * 500_000 * 4
    assert torch.equal(load(ranks.root, JOB, ManifestName(1, 1, 1)).items["model"]["layer2"], large["model"]["layer2"])


def test_nothing_is_committed_before_the_last_part_is_durable(ranks):
    assert ranks.begun(1)
    ranks.ended()
    ranks.process(2).send_signal(signal.SIGSTOP)
    assert ranks.begun(2)
    until(lambda: len(ranks.left()) == 1)  # that of rank 1
    assert ranks.over() == 0
    assert ranks.committed == [1]
    ranks.process(2).send_signal(signal.SIGCONT)
    assert {str(each.name) for each in ranks.ended()} == {"1-2-1"}
    assert ranks.committed == [1, 2]


def polls(process):
    """How often it has waited so far."""
    return int(Path(f"/proc/{process.pid}/status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_the_wait_for_another_rank_does_not_count_as_the_duration_of_the_save(ranks):
    assert ranks.begun(1)
    ranks.ended()
    ranks.process(2).send_signal(signal.SIGSTOP)
    began_s = time.monotonic()
    assert ranks.begun(2)
    until(lambda: len(ranks.left()) == 1)  # that of rank 1
    waited_s, polled = -time.monotonic(), polls(ranks.process(0))
    until(lambda: polls(ranks.process(0)) > polled + 20)
    waited_s += time.monotonic()
    ranks.process(2).send_signal(signal.SIGCONT)
    ended = ranks.ended()
    assert len({each.took_s for each in ended}) == 1
    assert ranks.committed == [1, 2]
    assert ended[0].took_s < time.monotonic() - began_s - waited_s


def test_a_rank_whose_process_dies_leaves_no_checkpoint_and_all_say_why(ranks, capsys):
    assert ranks.begun(1)
    ranks.ended()
    ranks.process(1).send_signal(signal.SIGSTOP)
    assert ranks.begun(2)
    ranks.process(1).kill()
    ended = ranks.ended()
    assert [each.name for each in ended] == [None] * RANKS
    assert all(isinstance(each.error, StoreUnavailable) for each in ended)
    assert "rank 1" in ended[0].error.message
    assert ranks.committed == [1]
    assert not ranks.begin(3)
    assert not any(each.possible for each in ranks.all), "training waits from now on, on all ranks"
    assert "training waits while checkpoints are written" in capsys.readouterr().err


def test_what_is_left_off_is_left_off_on_all_ranks_unless_rank_0_has_committed_it(ranks):
    assert ranks.begun(1)
    ranks.ended()
    for step in range(2, 8):
        assert ranks.begun(step)
        if step % 2:
            until(lambda: ranks.all[0].over() == COMMITTED)
        ended = [one for (one,) in ranks.together(lambda rank: ranks.all[rank].leave_off())]
        assert len({each.name for each in ended}) == 1
        assert (step in ranks.committed) == (ended[0].name is not None)
        assert step in ranks.committed or not step % 2
    assert ranks.begun(9)
    ranks.ended()
    assert ranks.left() == [], "parts of what was left off are deleted as well"


def test_a_part_of_an_earlier_attempt_does_not_count(ranks):
    name = ManifestName(1, 1, 1)
    for rank in (1, 2):
        parts.put_part(ranks.root, JOB, name, rank, "earlier", {"items": {}, "position": 0, "pieces": []})
    assert ranks.begun(1)
    assert ranks.ended()[0].name == name
    assert load(ranks.root, JOB, name, 2).items["rng"]["python"] == 2


def test_a_rank_that_never_arrives_is_named(tmp_path):
    now = [0.0]
    parts.put_part(tmp_path, JOB, ManifestName(1, 1, 1), 1, "x", {"items": {}, "position": 0, "pieces": []})
    with pytest.raises(StoreUnavailable, match="rank 2 has not written its part of checkpoint 1-1-1 within 600 s"):
        parts.await_parts(
            tmp_path,
            JOB,
            ManifestName(1, 1, 1),
            3,
            "x",
            lambda: None,
            monotonic=lambda: now[0],
            sleep=lambda _: now.__setitem__(0, now[0] + 50),
        )
    assert now[0] > parts.WAIT_S


def test_a_rank_that_has_more_to_write_within_the_limit_of_bandwidth_is_waited_for(tmp_path):
    name, now, limit = ManifestName(1, 1, 1), 0.0, 1e6
    plan = parts.Shares(
        [("a", "float32", (1,)), ("b", "float32", (10**9,))],
        [[0], [1]],
        [[(0, Box((0,), (1,)))], [(1, Box((0,), (10**9,)))]],
    )

    def sleep(_):
        nonlocal now
        now += 50.0
        if now > 4e9 / limit:
            parts.put_part(tmp_path, JOB, name, 1, "x", {"items": {}, "position": 0, "pieces": []})

    wait_s = parts.patience_s(plan, limit)
    found = parts.await_parts(tmp_path, JOB, name, 2, "x", lambda: None, wait_s, monotonic=lambda: now, sleep=sleep)
    assert len(found) == 1
    assert now > parts.WAIT_S == parts.patience_s(plan, None)


def test_a_gang_whose_checkpoints_are_written_beside_it_resumes_to_the_same_bits(tmp_path, nursery):
    whole = Gang(tmp_path / "whole", nursery, "parallel:main", 40)
    broken = Gang(tmp_path / "broken", nursery, "parallel:main", 40)
    hashes = []
    for gang, kills in ((whole, []), (broken, [[2, 17], [0, 30]])):
        gang.folder.mkdir()
        for kill in kills:
            lost = gang.launch({"max_in_flight": 1, "max_overhead": 1.0}, kill=kill, slowly=True)
            assert [machine.progress.state for machine in lost] == ["failed", "failed"]
        last = gang.launch({"max_in_flight": 1, "max_overhead": 1.0}, slowly=bool(kills))
        assert [machine.status for machine in last] == ["finished"] * 2, last[0].log
        hashes.append([machine.progress.weights_hash for machine in last])
    assert hashes[0] == hashes[1]
    assert last[0].progress.start_step > 0
