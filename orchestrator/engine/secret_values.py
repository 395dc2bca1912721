"""The values of jobs' secrets, as given by whoever submitted each job: in memory, and only while this process lives.

`keep` may write them elsewhere (orchestrator.services.secret_file); the store never holds one. Any thread may give
them. Must not know: how they arrive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from orchestrator.engine.world import World
from orchestrator.errors import NotFoundError, TradewindError, UsageError
from orchestrator.model import TERMINAL, Job
from trainers.masking import Mask

MAX_TOTAL_CHARACTERS = 16 << 20  # of all jobs: a bound on this process's memory, far above what secrets need

Given = Mapping[str, Mapping[str, str]]
"""Job id -> name -> value."""


class MissingSecret(TradewindError):
    """The control plane does not have a secret that the job names. The job waits for it: that is no failure of it."""


class SecretValues:
    """What was given, by job: two submitters of one name each get their own value."""

    def __init__(self, given: Given | None = None, *, keep: Callable[[Given], None] = lambda _given: None) -> None:
        self._given = {job_id: dict(values) for job_id, values in (given or {}).items()}
        self._keep = keep
        self._lock = threading.Lock()
        self._mask = _mask_of(self._given)

    def give(self, given: Given) -> None:
        """Take over values; those that a job has already are replaced. Raises UsageError when they are too many."""
        with self._lock:
            merged = self._given | {job_id: self._given.get(job_id, {}) | dict(new) for job_id, new in given.items()}
            if sum(len(value) for values in merged.values() for value in values.values()) > MAX_TOTAL_CHARACTERS:
                raise UsageError(
                    "the control plane holds too many secrets already", hint="cancel jobs that are not needed any more"
                )
            self._keep(merged)
            self._given = merged
            self._mask = _mask_of(merged)

    def of(self, job: Job) -> dict[str, str]:
        """The values that the job names. Raises MissingSecret, whose text says how to give them."""
        with self._lock:
            given = self._given.get(job.id, {})
        names = job.spec.train.secrets
        missing = [name for name in names if name not in given]
        if missing:
            plural = "s" if len(missing) > 1 else ""
            raise MissingSecret(
                f"waits for its secret{plural} {', '.join(missing)}, which this control plane does not have: "
                f"with {'them' if plural else 'it'} in your environment, run `tradewind secrets give {job.name}`"
            )
        return {name: given[name] for name in names}

    def missing(self, job: Job) -> str | None:
        """Why the job cannot be started for want of a secret, and the remedy; None if it can."""
        try:
            self.of(job)
        except MissingSecret as error:
            return str(error)
        return None

    def mask(self, text: str) -> str:
        """`text` without the values of any job: trainers mask their own words, but what a node says is not trusted."""
        return self._mask.text(text)

    def forget_ended(self, world: World) -> None:
        """Let go of the values of jobs that will never run again. Raises StoreError."""
        with self._lock:
            known = list(self._given)
        with world.store.read() as tx:
            ended = set()
            for job_id in known:
                try:
                    if tx.outline(job_id).state in TERMINAL:
                        ended.add(job_id)
                except NotFoundError:
                    continue  # it is about to be submitted: values are given first
        if ended:
            with self._lock:
                self._given = {job_id: values for job_id, values in self._given.items() if job_id not in ended}
                self._keep(self._given)
                self._mask = _mask_of(self._given)


def _mask_of(given: Given) -> Mask:
    """Of values that jobs share the first name stands for all."""
    values: dict[str, set[str]] = {}
    for each in given.values():
        for name, value in each.items():
            values.setdefault(name, set()).add(value)
    return Mask(values)
