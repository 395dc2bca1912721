"""History: a random sequence, from one seed, of user actions, cloud events and crashes of the control plane.

Jobs are submitted, moved, paused, resumed and cancelled; prices jump, capacity runs out, machines are preempted with
and without notice, trainers stop responding, calls fail in every way that the fake cloud supports, are answered late or
never. A control plane is killed at an edge of a random kind (each seed prefers one) and restarted later. Others are
paused there: another one takes over, or none does, and then they resume with what they remember. Trainers are paused
while they save.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator.errors import NotLeaderError
from orchestrator.model import STEP_ORDER, Job, Step
from orchestrator.store import Tx
from providers.fake import Fault
from providers.instance import Instance, InstanceState
from providers.money import usd
from providers.offer import OfferId
from tests.rig.agents import Agents
from tests.rig.crash_points import FILES, STEPS, WRITES, Killed
from tests.rig.database import ScratchDatabase
from tests.rig.harm import Harm
from tests.rig.nap import Nap
from tests.rig.outcome import Outcome
from tests.rig.sabotage import Sabotage
from tests.rig.trainer import OF_A_VOID, QUIESCE_S, SAVE_EDGES, Trainer
from tests.rig.wanted import wanted_of
from tests.rig.world import FAKE, World

SETTLE_S = 3000.0
PATIENCE_S = 12.0  # a death that finds no edge of the kind that the seed leans to by then is drawn again,
SHORT_PATIENCE_S = 4.0  # one of any other kind sooner
DEATHS, PAUSES, NAPS = 30, 30, 20  # at most: of the control plane's deaths and pauses, of the trainers' pauses
BUSY, MOST_JOBS = 4, 16  # a seed that leans to what only machines come to keeps so many, for so many jobs in all
NAP_S = (0.5, 3.0, 10.0, 40.0)
BREAKS = {"void": (Step.CUTOVER,), "resume": STEP_ORDER[2:-3]}  # the steps at which a lost target leads there
HOLDS = "after quiesce"  # a process that sleeps here leaves a trainer that holds to itself
GANGS = 3  # in one history of so many, jobs need several machines at once
CALLS = ("launch", "terminate", "describe", "list_owned", "offers", "price_history")


def play(seed: int, folder: Path, database: ScratchDatabase, *, story: bool = False, world: World = FAKE) -> Outcome:
    """Plays the history of `seed` and checks the outcome, which includes the audit trail if `story`."""
    return History(seed, folder, database, world).play(story=story)


@dataclass(frozen=True, slots=True)
class Leaning:
    """The preferred edges of a seed: where control planes are killed and paused, and where trainers are paused."""

    death: str
    pause: str
    nap: str

    @classmethod
    def of(cls, seed: int, world: World) -> Leaning:
        """The preferences of a seed."""
        return cls(*(edges[seed % len(edges)] for edges in (world.deaths, world.pauses, SAVE_EDGES)))

    @property
    def to_a_void(self) -> bool:
        """True if trainers are paused while they void a handover, which happens when the control plane is paused."""
        return self.nap.endswith(OF_A_VOID)


@dataclass
class _Arms:
    """The number of faults of a kind that are left, and how long an armed one waits for its edge."""

    left: int
    until_s: float = 0.0


class History:
    """The history of one seed. `home` may be inspected after `play`."""

    def __init__(self, seed: int, folder: Path, database: ScratchDatabase, world: World = FAKE) -> None:
        self.seed, self._world = seed, world
        self._random = rng = random.Random(f"history {seed}")
        self._leaning = Leaning.of(seed, world)
        self.home = world.settle(rng, seed, folder, database)
        self._deaths, self._pauses, self._naps = _Arms(DEATHS), _Arms(PAUSES), _Arms(NAPS)
        self.home.site.naps.asleep = self._falls_asleep
        self.harm = Harm(self.home, rng, self._at)
        self._agents = Agents(self.home, random.Random(f"agents {seed}"), self._at, self.harm.culprits)
        self._jobs: list[Job] = []
        self._resumed: set[str] = set()
        self._up_s = 0.0
        self._peace_from_s: float | None = None
        self._later: list[tuple[float, Callable[[], object]]] = []

    def play(self, *, story: bool = False) -> Outcome:
        """Runs it from the first job to the end of the last machine."""
        home, rng = self.home, self._random
        for number in range(rng.randint(3, 6)):
            self._at(rng.uniform(0, 15) * number, self._submit)
        self._next_s = 4.0
        while self._up_s < self._world.chaos_s:
            self._pass()
            self._agents.act(self._in_states("running", "migrating"))
            if self._now_s >= self._next_s:
                self._next_s = self._now_s + rng.expovariate(1 / 2.5)
                self._something()
        self._make_peace()
        end_s = self._now_s + SETTLE_S
        while self._later or self._asked or not home.settled or self._unfinished:
            if self._now_s > end_s:
                break
            self._pass()
            self._let_go()
        return self._outcome(story)

    # -- time ---------------------------------------------------------------------------------------------------------
    @property
    def _now_s(self) -> float:
        return self.home.clock.monotonic_s()

    @property
    def _asked(self) -> bool:
        return bool(self.home.read(lambda tx: len(tx.open_commands())))

    @property
    def _unfinished(self) -> bool:
        return any(job.state == "paused" for job in self.home.read(lambda tx: tx.jobs()))

    def _at(self, in_s: float, what: Callable[[], object]) -> None:
        self._later.append((self._now_s + in_s, what))

    def _pass(self) -> None:
        """One tick of the control plane and the events that are due, then a short time if something changed, else a
        longer one."""
        rng, injector = self._random, self.home.injector
        due = [each for each in self._later if each[0] <= self._now_s]
        for each in due:
            self._later.remove(each)
            each[1]()
        self._give_secrets()
        if (edge := self._leads_to()) in BREAKS and rng.random() < 0.8:
            self._break_a_handover(BREAKS[edge])
        struck = injector.deaths.total(), injector.pauses.total(), self.home.site.naps.pauses.total()
        self._arm()
        if self.home.asleep is not None:
            self._sleeps(self.home.asleep)
        down_s = rng.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 5.0, 45.0))
        stride_s = rng.uniform(0.05, 0.8)
        if not self.home.tick(0.0, down_s):
            stride_s = rng.uniform(0.3, 2.5)
            if self._peace_from_s is not None and not self.home.read(lambda tx: tx.unsettled_runs()):
                stride_s += 30.0  # jobs wait for their back-offs
        if self.home.asleep is not None:
            self._sleeps(self.home.asleep)
        stride_s *= self._world.pace
        self.home.clock.advance(round(stride_s, 3))
        self._up_s += stride_s
        now = injector.deaths.total(), injector.pauses.total(), self.home.site.naps.pauses.total()
        for arms, before, after in zip((self._deaths, self._pauses, self._naps), struck, now, strict=True):
            arms.left -= after - before

    # -- kills and pauses ---------------------------------------------------------------------------------------------
    def _arm(self) -> None:
        """Arms the next kill and pauses, if there are none or if their edges are not reached."""
        injector, naps = self.home.injector, self.home.site.naps
        if self._due(self._deaths, armed=injector.at is not None or injector.when is not None):
            injector.at = injector.when = None
            injector.at, edge = self._blow(self._deaths, self._leaning.death, self._world.deaths)
            injector.when = None if edge is None else edge.__eq__
            injector.count = 0
            if edge is not None and edge.endswith("campaign"):
                self.home.start()  # nobody campaigns but who is new
        if self._due(self._pauses, armed=injector.tires):
            injector.sleep_at = injector.sleep_when = None
            at, edge = self._blow(self._pauses, self._leaning.pause, self._world.pauses)
            if self._leaning.to_a_void and self._random.random() < 0.8:
                at, edge, self._pauses.until_s = None, HOLDS, self._now_s + 2 * PATIENCE_S
                self._migrate()
            injector.sleep_at = None if at is None else injector.count + at
            injector.sleep_when = None if edge is None else edge.__eq__
            if edge is not None and edge.endswith("campaign"):
                self.home.restart()
        if self._due(self._naps, armed=naps.when is not None):
            at, edge = self._blow(self._naps, self._leaning.nap, SAVE_EDGES)
            if self._leaning.to_a_void:
                at, edge = None, self._leaning.nap
            naps.when = (lambda _: True) if edge is None else edge.__eq__

    def _due(self, arms: _Arms, *, armed: bool) -> bool:
        return arms.left > 0 and (not armed or self._now_s > arms.until_s)

    def _blow(self, arms: _Arms, leaning: str, edges: Sequence[str]) -> tuple[int | None, str | None]:
        """Where it falls next: so many edges from now, or at the edge that the seed leans to, or at any other."""
        rng = self._random
        leans = 0.2 <= (draw := rng.random()) < 0.85
        arms.until_s = self._now_s + (PATIENCE_S if leans else SHORT_PATIENCE_S)
        if draw < 0.2:
            return int(rng.expovariate(1 / 25)) + 1, None
        if leans and self._world.roams:
            leaning = rng.choice(self._world.roams)
        return None, leaning if leans else rng.choice(edges)

    def _sleeps(self, nap: Nap[bool]) -> None:
        """A control plane has fallen asleep. Perhaps another one takes over, and it wakes when that one has acted for a
        while; else nobody acts until it wakes, and it goes on."""
        rng, home = self._random, self.home
        home.asleep = None
        name = home.injector.slept
        keeps = name == HOLDS and self._leaning.to_a_void
        if (name.startswith("before") and name.split(" ", 1)[1] in WRITES) or (rng.random() < 0.7 and not keeps):
            home.clock.advance(rng.choice((0.0, 0.0, 2.0, 20.0)))
            home.take_over()
            self._at(rng.choice((0.0, 1.0, 5.0, 20.0, 60.0)), lambda: self._wake(nap))
            return
        for _ in range(rng.randint(1, 3)):
            home.clock.advance(QUIESCE_S + 1 if keeps else rng.choice(NAP_S))
            self._something()
        self._go_on(nap)

    def _go_on(self, nap: Nap[bool]) -> None:
        """It still leads, unless somebody went down and up meanwhile."""
        try:
            if not nap.go():
                self._sleeps(nap)  # again
                return
            nap.value()
        except (NotLeaderError, Sabotage):
            return
        except Killed:
            self.home.start()

    def _wake(self, nap: Nap[bool]) -> None:
        """It does not lead any more, and goes on with what it remembers, until it finds the door closed."""
        with suppress(Killed, NotLeaderError, Sabotage):
            if not nap.go():
                self._at(self._random.choice(NAP_S), lambda: self._wake(nap))
                return
            nap.value()

    def _falls_asleep(self, trainer: Trainer) -> None:
        """A trainer in the middle of a save; perhaps with its whole machine, perhaps while that cannot be ended."""
        rng = self._random
        with_host = rng.random() < 0.7
        trainer.sleep(with_host=with_host)
        in_s, renewed = rng.choice((1.0, 15.0, 30.0, 60.0, 90.0)), rng.random() < 0.3
        if with_host and rng.random() < 0.6:
            self.home.faults.inject("terminate", *[Fault.NO_ANSWER] * rng.randint(5, 40))
        self._at(in_s, lambda: self.home.site.wake(trainer.run_id, renewed=renewed))

    # -- events -------------------------------------------------------------------------------------------------------
    def _something(self) -> None:
        rng = self._random
        wanted = {
            "adopt": self._lose_a_launch,
            "resolve": self._lose_a_launch,
            "stop": self._pause,
            "ask": self._pause,
            "compare": self._cancel,
            "submit": self._submit,
            "event": self._silence,
            "sign": self._break_a_target,
            "abort": self._break_a_target,
            **dict.fromkeys(
                (*STEPS, "prepare", "start", "quiesce", "resume", "void", "fence", *FILES, *self._world.renting),
                self._migrate,
            ),
        }.get(self._leads_to())  # what leads to the edge that this seed leans to
        if wanted is not None and rng.random() < 0.8:
            self._keep_busy()
            wanted()
            return
        (what,) = rng.choices(
            (
                self._migrate, self._reprice, self._preempt, self._crash, self._pause, self._cancel, self._dry,
                self._silence, self._lose_a_launch, self._fail_calls, self._break_a_target, self._harm,
            ),
            (30, 14, 14, 5, 6, 1, 6, 2, 8, 5, 4, 35),
        )  # fmt: skip
        what()

    def _leads_to(self) -> str:
        """One of the two edges that this seed leans to, without its moment."""
        return self._random.choice((self._leaning.death, self._leaning.pause)).split(" ", 1)[1]

    def _keep_busy(self) -> None:
        """Submits jobs, because edges are only reached while jobs run."""
        runs = self.home.read(lambda tx: tx.runs(live=True))
        if sum(run.end is None for run in runs) < BUSY and len(self._jobs) < MOST_JOBS:
            self._submit()

    def _submit(self) -> None:
        """A user submits a job; its code may raise."""
        rng, home = self._random, self.home
        spec = wanted_of(rng, f"job-{len(self._jobs)}", gangs=self.seed % GANGS == 0)
        job = home.new_job(replace(spec, train=replace(spec.train, code=self._world.code)))
        if spec.train.secrets and rng.random() < 0.7:
            home.give_secrets(job)  # else later: until then it waits
        self._by_a_user(lambda tx: tx.add_job(job), lambda tx: any(each.id == job.id for each in tx.jobs()))
        self._jobs.append(job)
        draw = rng.random()
        if draw < 0.12:
            self.harm.culprits.add(job.id)
            home.site.raise_at(job.id, *sorted(rng.sample(range(5, 90), rng.choice((1, 1, 3)))))
        elif draw < 0.24:
            self.harm.misbehave(job)

    def _give_secrets(self) -> None:
        """A user sees that a job waits for what the control plane has forgotten, or never had."""
        for job in self._jobs:
            if self.home.secrets.missing(job) is not None and self._random.random() < 0.1:
                self.harm.counted["no secret"] += 1
                self.home.give_secrets(job)

    def _ask(self, kind: str, job: Job, **args: str) -> None:
        asked = self.home.read(lambda tx: len(tx.open_commands()))
        self._by_a_user(
            lambda tx: tx.add_command(kind, job.id, args, "user:me"), lambda tx: len(tx.open_commands()) > asked
        )

    def _by_a_user(self, change: Callable[[Tx], object], made: Callable[[Tx], bool]) -> None:
        """By a process of its own, which may die, too: then its user looks what is there, and asks again if need be."""
        while not self.home.read(made):
            with suppress(Killed), self.home.store.write() as tx:
                change(tx)

    def _in_states(self, *states: str) -> list[Job]:
        return [job for job in self.home.read(lambda tx: tx.jobs()) if job.state in states]

    def _a_job(self, *states: str) -> Job | None:
        jobs = self._in_states(*states)
        return self._random.choice(jobs) if jobs else None

    def _a_machine(self) -> Instance | None:
        running = [each for each in self.home.cloud.instances() if each.state is InstanceState.RUNNING]
        return self._random.choice(running) if running else None

    def _an_offer(self) -> str:
        return self._random.choice(self._world.offers)

    def _migrate(self) -> None:
        if (job := self._a_job("running")) is not None:
            run, allowed = self.home.current(job), job.spec.capacity
            others = [
                each
                for each in self._world.offers
                if OfferId.parse(each).capacity_type in allowed and (run is None or each != run.offer_id)
            ]
            if self._random.random() < 0.8:
                self._ask("migrate", job, offer_id=self._random.choice(others))
            else:
                self._ask("migrate", job)

    def _reprice(self) -> None:
        self.home.cloud.set_price(self._an_offer(), usd(f"{self._random.uniform(0.2, 4.0):.3f}"))

    def _preempt(self) -> None:
        if (machine := self._a_machine()) is not None:
            self.home.cloud.preempt(machine.id, notice_s=self._random.choice((None, 1.0, 8.0, 30.0)))

    def _crash(self) -> None:
        if (machine := self._a_machine()) is not None:
            self.home.cloud.crash(machine.id)

    def _pause(self) -> None:
        if (job := self._a_job("running", "starting", "migrating", "queued")) is not None:
            self._ask("pause", job)
            patience_s = 6 if self._leads_to() == "stop" else 25
            self._at(self._random.uniform(1, patience_s), lambda: self._ask("resume", job))

    def _cancel(self) -> None:
        if (job := self._a_job("running", "starting", "migrating", "queued", "paused")) is not None:
            self._ask("cancel", job)

    def _dry(self) -> None:
        offer = self._an_offer()
        self.home.cloud.set_capacity(offer, self._random.choice((0, 1)))
        self._at(self._random.uniform(2, 40), lambda: self.home.cloud.set_capacity(offer, None))

    def _silence(self) -> None:
        if training := self.home.site.training():
            self.home.site.drop_reports(self._random.choice(training))

    def _lose_a_launch(self) -> None:
        """The answers to the next launches are lost; perhaps their job is stopped, and their machines break."""
        rng, home = self._random, self.home
        edge = self._leads_to()
        leans = edge in ("adopt", "resolve")
        faults = {"resolve": (Fault.NO_ANSWER,), "adopt": (Fault.LOST_REPLY, Fault.LATE)}
        fault = rng.choice(faults.get(edge, (Fault.LOST_REPLY, Fault.LATE, Fault.NO_ANSWER)))
        home.faults.inject("launch", *[fault] * rng.randint(1, 6))
        job = self._a_job("running", "queued")
        if job is None:
            return
        offer = self._an_offer()
        if job.state == "running":
            self._ask("migrate", job, offer_id=offer)
        if fault is Fault.NO_ANSWER:
            home.cloud.set_capacity(offer, 0)
            self._at(rng.uniform(8, 20), lambda: home.cloud.set_capacity(offer, None))
        if leans or rng.random() < 0.6:
            self._at(rng.uniform(0.5, 3), lambda: self._ask("pause", job))
            self._at(rng.uniform(4, 20), lambda: self._ask("resume", job))
        if rng.random() < 0.5:
            self._at(rng.uniform(1, 5), self._break_what_is_unknown)

    def _break_a_target(self) -> None:
        """A machine that was rented, and on which nothing trains yet."""
        new = [run for run in self.home.read(lambda tx: tx.runs(live=True)) if run.training_from_ms is None]
        if rented := [instance_id for run in new for instance_id in run.instance_ids]:
            self.home.cloud.crash(self._random.choice(rented))

    def _break_a_handover(self, steps: Sequence[Step]) -> None:
        """The machine to which a job that trains is about to be handed over."""
        for migration in self.home.read(lambda tx: tx.migrations(open=True)):
            if migration.step in steps and migration.source_run_id is not None:
                target = self.home.read(lambda tx, of=migration: tx.run(of.target_run_id))  # type: ignore[misc]
                if target.instance_ids:
                    self.home.cloud.crash(target.instance_ids[-1])

    def _break_what_is_unknown(self) -> None:
        known = {each for run in self.home.read(lambda tx: tx.runs()) for each in run.instance_ids}
        for machine in self.home.cloud.instances():
            if machine.alive and machine.id not in known:
                self.home.cloud.crash(machine.id)

    def _harm(self) -> None:
        """Something is done to one job, to the whole cloud, or by a user to everything."""
        if self.harm.strike(self._a_job("running", "migrating", "starting"), self._a_job("running")) == "down":
            for job in self.home.read(lambda tx: tx.jobs()):
                self._at(self._random.uniform(0, 5), partial(self._resume, job))

    def _resume(self, job: Job) -> None:
        if self.home.job(job).state == "paused":
            self._ask("resume", job)

    def _fail_calls(self) -> None:
        rng = self._random
        fault = rng.choice((Fault.NO_ANSWER, Fault.THROTTLED, Fault.LOST_REPLY))
        self.home.faults.inject(rng.choice(CALLS), *[fault] * rng.randint(2, 12))

    # -- the end ------------------------------------------------------------------------------------------------------
    def _make_peace(self) -> None:
        """Stops cloud faults; control planes are still killed."""
        self._peace_from_s, home = self._now_s, self.home
        home.faults.forget()
        for offer in self._world.offers:
            home.cloud.set_capacity(offer, None)

    def _let_go(self) -> None:
        """Users resume what they paused, and cancel what cannot go on: without budget, or for want of patience."""
        if self._later or self._asked:
            return
        for job in self.home.read(lambda tx: tx.jobs(states=("paused", "queued"))):
            if job.state == "paused" and job.id not in self._resumed:
                self._resumed.add(job.id)
                self._ask("resume", job)
            elif job.state == "paused" or self._now_s - (self._peace_from_s or 0.0) > SETTLE_S / 2:
                self._ask("cancel", job)

    def _outcome(self, story: bool) -> Outcome:
        home = self.home
        with home.store.read() as tx:
            migrations, jobs = tx.migrations(), tx.jobs()
            events = tx.events()
            reported = [f"{each.at_ms} {each.id} {each.kind} {each.job_id}: {each.message}" for each in events]
            booked = [f"{each.id} {each.amount_nano_usd}" for each in tx.entries()]
        start_ms = home.clock.start_ms
        self.harm.counted["slow call"] = home.wires.counted
        return Outcome(
            self.seed,
            tuple(self._world.findings(home, self.harm.culprits)),
            dict(home.injector.deaths),
            dict(home.injector.pauses),
            dict(home.site.naps.pauses),
            dict(self.harm.counted + self._agents.counted),
            len(migrations),
            sum(migration.step is Step.DONE for migration in migrations),
            dict(Counter(job.state for job in jobs)),
            len(home.cloud.bills()),
            len(events),
            self._now_s,
            hashlib.blake2b("\n".join([*reported, *booked]).encode(), digest_size=8).hexdigest(),
            tuple(f"{(each.at_ms - start_ms) / 1000:8.3f} {each.kind}: {each.message}" for each in events)
            if story
            else (),
        )
