"""The jobs of the generated fleet: what they train, where they run, and how their runs end.

Each job takes the cheapest offer per step, moves when another one is clearly cheaper, and loses spot machines now and
then. This simplified policy only fills a store to look at; it proves nothing about savings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from random import Random

from orchestrator.model import Reason, RunEnd
from orchestrator.web.demo.market import HOUR_MS, DemoMarket
from providers.offer import Offer

DAY_MS = 24 * HOUR_MS
SPEEDS: Mapping[str, float] = {  # relative, per GPU
    "T4": 1.0,
    "L4": 1.9,
    "A10G": 2.4,
    "V100": 2.9,
    "A100-40GB": 6.1,
    "A100-80GB": 6.6,
    "H100": 12.2,
    "H100-NVL": 11.6,
}
HOURS = 2.2
"""A factor that lengthens jobs, so that more of them lose machines or move."""
SMALL = ("T4", "L4", "A10G", "V100")
MIDDLE = ("A10G", "V100", "A100-40GB", "A100-80GB")
LARGE = ("A100-40GB", "A100-80GB", "H100", "H100-NVL")


@dataclass(frozen=True)
class Family:
    """A kind of job: name, project and owner, the GPUs that it fits on, steps per second on a T4, and hours there."""

    name: str
    project: str
    owner: str
    gpus: tuple[str, ...]
    steps_per_s: float
    hours: tuple[float, float]
    weight: float
    grows: float = 0.0  # how much more often it is submitted in the last month


FAMILIES = (
    Family("resnet50-ablation", "vision", "mei", SMALL, 2.1, (6, 30), 5, 0.3),
    Family("vit-l16-pretrain", "vision", "mei", LARGE, 0.42, (90, 420), 2.6, 1.6),
    Family("detr-finetune", "vision", "tomas", MIDDLE, 0.9, (12, 60), 3),
    Family("llama-3b-sft", "language", "priya", LARGE, 0.16, (80, 300), 3, 0.5),
    Family("bert-distill", "language", "jonas", SMALL, 3.4, (5, 26), 5),
    Family("rm-ranking", "language", "priya", MIDDLE, 0.7, (20, 90), 2.4),
    Family("gnn-molecules", "research", "aisha", SMALL, 5.0, (4, 22), 4),
    Family("diffusion-256", "research", "luca", LARGE, 0.3, (60, 240), 1.6),
    Family("asr-conformer", "speech", "noor", MIDDLE, 1.1, (25, 120), 2.2),
    Family("tts-vocoder", "speech", "noor", SMALL, 1.8, (10, 40), 2),
)


@dataclass
class Stretch:
    """One run of a job. Times are market ms; `reason` is why it was started, `note` the same with figures."""

    offer: Offer
    begin_ms: int
    reason: Reason
    saving_nano_usd: int = 0
    training_ms: int = 0
    end_ms: int | None = None
    end: RunEnd | None = None
    start_step: int = 0
    last_step: int = 0
    repeated: int = 0


@dataclass
class Life:
    """One job from its submission on; `state` is its state at the end of the history."""

    number: int
    family: Family
    submitted_ms: int
    steps: int
    state: str = "running"
    finished_ms: int | None = None
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Such as `bert-distill-0042`."""
        return f"{self.family.name}-{self.number:04}"

    def steps_per_s(self, offer: Offer) -> float:
        """Its speed on a machine."""
        together: float = offer.gpu_count**0.92
        return self.family.steps_per_s * SPEEDS[offer.gpu or "T4"] * together

    def loss_at(self, step: int) -> float:
        """Its loss, a falling curve."""
        return 0.35 + 2.4 * exp(-4.0 * step / self.steps)


def lives(demo: DemoMarket, count: int, start_ms: int, now_ms: int, seed: int) -> list[Life]:
    """`count` jobs submitted between two instants, in the order of submission."""
    at = Random(seed)
    made = []
    for _ in range(count):
        share = at.random()
        if at.random() < 0.3:
            share = 1.0 - 0.34 * at.random()  # there are more jobs in the last month
        submitted = start_ms + DAY_MS + round(share * (now_ms - start_ms - 1.1 * DAY_MS))
        late = (submitted - start_ms) / (now_ms - start_ms) > 0.66
        weights = [each.weight * (1 + each.grows * late) for each in FAMILIES]
        (family,) = at.choices(FAMILIES, weights)
        made.append((submitted, family, HOURS * at.uniform(*family.hours), at.random()))
    made += [(now_ms - round(h * HOUR_MS), FAMILIES[i % len(FAMILIES)], 260.0, 0.5) for i, h in enumerate(RECENT)][
        : max(0, min(len(RECENT), count // 20))
    ]
    made = sorted(made, key=lambda each: each[0])[-count:]
    found = []
    for number, (submitted, family, hours, luck) in enumerate(made, 1):
        life = Life(number, family, submitted, max(200, round(family.steps_per_s * hours * 3600 / 100) * 100))
        _live(life, demo, now_ms, Random(f"{seed} {number}"), luck)
        found.append(life)
    return found


RECENT = (1.5, 3.0, 4.5, 6.5, 9.0, 11.0, 14.0, 19.0, 26.0, 31.0)
"""How many hours before the end some jobs are submitted, so that several run at the end."""


def candidates(life: Life, demo: DemoMarket, at_ms: int) -> Sequence[tuple[float, Offer]]:
    """(nano-USD per step, offer) of each offer that it fits on, cheapest first."""
    fits = [offer for offer in demo.offers if offer.gpu in life.family.gpus]
    return sorted(
        ((demo.price_at(each.id, at_ms) / 3600 / life.steps_per_s(each), each) for each in fits),
        key=lambda pair: (pair[0], pair[1].id),
    )


def _live(life: Life, demo: DemoMarket, now_ms: int, at: Random, luck: float) -> None:
    clock, done, again = life.submitted_ms + at.randint(20, 200) * 1000, 0, 0
    reason: Reason = "first placement"
    saving = 0
    fails = 0.975 < luck < 0.992
    lost_offer: str | None = None
    while True:
        ranked = [pair for pair in candidates(life, demo, clock) if pair[1].id != lost_offer]
        offer = ranked[min(len(ranked) - 1, at.choice((0, 0, 0, 0, 1)))][1]
        stretch = Stretch(offer, clock, reason, saving, start_step=done, repeated=again)
        life.stretches.append(stretch)
        stretch.training_ms = clock + at.randint(150, 420) * 1000
        rate = life.steps_per_s(offer)
        ends = stretch.training_ms + round((life.steps - done) / rate * 1000)
        hazard_h = at.expovariate(1 / (26.0 if offer.spot else 4000.0))
        lost_ms = stretch.training_ms + round(hazard_h * HOUR_MS)
        look = stretch.training_ms + 6 * HOUR_MS
        moved: tuple[int, int] | None = None
        while look < min(ends, lost_ms, now_ms) and len(life.stretches) < 9:
            best = candidates(life, demo, look)[0]
            here = demo.price_at(offer.id, look) / 3600 / rate
            left = life.steps - done - (look - stretch.training_ms) / 1000 * rate
            gain = (here - best[0]) * left
            if best[1].id != offer.id and best[0] < 0.82 * here and gain > 400_000_000:
                moved = (look, round(gain))
                break
            look += 2 * HOUR_MS
        stop = min(each for each in (ends, lost_ms, now_ms, moved[0] if moved else now_ms) if each)
        if fails and len(life.stretches) == 2:
            stop = min(stop, stretch.training_ms + HOUR_MS)
        done = min(life.steps, stretch.start_step + max(0, int((stop - stretch.training_ms) / 1000 * rate)))
        stretch.last_step = done
        if stop == now_ms and ends > now_ms:
            life.state = "running"
            if now_ms < stretch.training_ms:
                life.state, stretch.last_step = "starting", stretch.start_step
            return
        stretch.end_ms = stop
        if stop == ends:
            stretch.end, stretch.last_step = "finished", life.steps
            life.state, life.finished_ms = "finished", stop
            return
        if fails and len(life.stretches) == 2:
            stretch.end, life.state, life.finished_ms = "failed", "failed", stop
            return
        if luck > 0.992 and len(life.stretches) == 2:
            stretch.end, life.state, life.finished_ms = "cancelled", "cancelled", stop
            return
        if moved is not None and stop == moved[0]:
            stretch.end, reason, saving, lost_offer = "moved", "cheaper offer", moved[1], None
            clock = stop - at.randint(180, 400) * 1000
        else:
            stretch.end, saving, lost_offer = "preempted", 0, offer.id
            reason = at.choice(("notice", "notice", "lost"))
            lost = at.randint(0, 400) if reason == "lost" else at.randint(0, 15)
            clock = stop + at.randint(5, 60) * 1000
            done = max(stretch.start_step, done - round(lost * rate))
        again = stretch.last_step - done
        if clock >= now_ms:
            life.state = "queued"
            return
