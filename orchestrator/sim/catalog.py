"""SimCatalog: checkpoints in memory that obey the rules of checkpoint format v1.

A run may commit only while its generation's fence is the newest; one that slips through that check all the same
(`slip`) is never restored. Must not know: trainers, machines, the engine's steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engine.checkpoints import CheckpointDamaged, ManifestInfo, Newest
from providers.clock import Clock


@dataclass
class SimCatalog:
    """(generation, step) of each manifest by job, and the fences. Implements CheckpointCatalog.

    `fenced_s` is the wall instant of each fence; `slipped` are the manifests that no rule let in, `rotten` the names of
    those whose damage only a reader finds, `spoiled` the jobs whose newest fence somebody altered. `look` lets the
    trainers write what they have written by now: they are simulated only when they are looked at.
    """

    clock: Clock
    manifests: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    fences: dict[str, dict[int, str | None]] = field(default_factory=dict)
    fenced_s: dict[tuple[str, int], float] = field(default_factory=dict)
    voided: set[tuple[str, int]] = field(default_factory=set)
    slipped: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    rotten: set[str] = field(default_factory=set)
    spoiled: set[str] = field(default_factory=set)
    look: Callable[[], object] = lambda: None

    def newest(self, root: Path, job_id: str, generation: int) -> Newest:
        """The newest of the newest fenced generation, else the one that its fence names."""
        del root
        self._believe(job_id)
        self.look()
        fences = {g: name for g, name in self.fences.get(job_id, {}).items() if g < generation}
        if not fences:
            return Newest(None)
        newest = max(fences)
        steps = [step for g, step in self._written(job_id) if g == newest]
        if steps:
            return Newest(ManifestInfo(name_of(newest, max(steps)), max(steps), 1))
        named = fences[newest]
        return Newest(None if named is None else ManifestInfo(named, step_of(named), 1))

    def find(self, root: Path, job_id: str, name: str) -> ManifestInfo | None:
        del root
        known = {name_of(*entry) for entry in self._written(job_id)}
        return ManifestInfo(name, step_of(name), 1) if name in known else None

    def fence(self, root: Path, job_id: str, generation: int, manifest: str | None) -> bool:
        del root
        self._believe(job_id)
        self.look()
        if (job_id, generation) in self.voided:
            return False
        existing = self.fences.setdefault(job_id, {}).setdefault(generation, manifest)
        self.fenced_s.setdefault((job_id, generation), self.clock.monotonic_s())
        if existing != manifest:
            raise ValueError(f"generation {generation} of {job_id} was fenced at {existing}, not {manifest}")
        return True

    def void(self, root: Path, job_id: str, generation: int) -> bool:
        del root
        if generation in self.fences.get(job_id, {}):
            return False
        self.voided.add((job_id, generation))
        return True

    def taken(self, root: Path, job_id: str) -> int:
        del root
        return max([self._fenced(job_id), *(g for job, g in self.voided if job == job_id)])

    def fenced(self, root: Path, job_id: str) -> int:
        del root
        self._believe(job_id)
        return self._fenced(job_id)

    def shut_out_s(self, job_id: str, generation: int) -> float | None:
        """When a newer generation first shut this one out; None while it has not."""
        newer = (at for (job, g), at in self.fenced_s.items() if job == job_id and g > generation)
        return min(newer, default=None)

    def commit(self, job_id: str, generation: int, step: int) -> bool:
        """What a trainer does: refused (False) once a newer generation is fenced."""
        if self._fenced(job_id) != generation:
            return False
        entries = self.manifests.setdefault(job_id, [])
        if (generation, step) not in entries:
            entries.append((generation, step))
        return True

    def restored(self, job_id: str, name: str) -> str:
        """What a trainer does that is told to start from `name`: the newest up to it that is not rotten."""
        wanted = (int(name.split("-", maxsplit=1)[0]), step_of(name))
        return next(
            (
                found
                for entry in sorted(self._written(job_id), reverse=True)
                if entry <= wanted and (found := name_of(*entry)) not in self.rotten
            ),
            name,
        )

    def slip(self, job_id: str, generation: int, step: int) -> None:
        """A writer that was shut out between its look at the fences and its commit."""
        self.slipped.setdefault(job_id, []).append((generation, step))

    def _fenced(self, job_id: str) -> int:
        return max(self.fences.get(job_id, {}), default=0)

    def _believe(self, job_id: str) -> None:
        if job_id in self.spoiled:
            raise CheckpointDamaged(f"the fence of {job_id} is altered", hint="repair it")

    def _written(self, job_id: str) -> list[tuple[int, int]]:
        return self.manifests.get(job_id, []) + self.slipped.get(job_id, [])


def name_of(generation: int, step: int) -> str:
    """A manifest's name, as checkpoint format v1 has it."""
    return f"{generation}-{step}-1"


def step_of(name: str) -> int:
    """The inverse, as far as the step goes."""
    return int(name.split("-")[1])
