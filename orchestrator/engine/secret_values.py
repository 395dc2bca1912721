"""The values of jobs' secrets, as given by whoever submitted each job: in memory, and only while this process lives.

They may be kept elsewhere, too (orchestrator.services.secrets.file); the store never holds one. Any thread may give
them; whoever reads them, or has text masked, waits for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from orchestrator.errors import NotFoundError, TradewindError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Job
from trainers.process.masking import Mask, forms

MAX_TOTAL_CHARACTERS = 512 << 10  # of all jobs, each value once: what is looked for is some fifty times as large
UNKNOWN_S = 600.0
"""Values come before their job is stored. Those of a job that is not stored for so long are let go: whoever gave them
was killed in between. In real seconds; counted from the first look (engine.control.FORGET_EVERY_S)."""

Given = Mapping[str, Mapping[str, str]]
"""Job id -> name -> value."""


class MissingSecret(TradewindError):
    """The control plane does not have a secret that the job names. The job waits for it: that is no failure of it."""


class SecretValues:
    """What was given, by job: two submitters of one name each get their own value."""

    def __init__(
        self, *, kept: Callable[[], Given] = dict, keep: Callable[[Given], None] = lambda _given: None
    ) -> None:
        """`keep` writes all values elsewhere, `kept` reads them from there; raises what `kept` raises."""
        self._kept = kept
        self._keep = keep
        self._changing = threading.Lock()  # one at a time changes what follows, and replaces it: readers need no lock
        self._given: Given = {}
        self._forms: Mapping[str, frozenset[bytes]] = {}
        self._mask = Mask({})
        self._unknown_since_s: dict[str, float] = {}
        self.read_kept()

    def read_kept(self) -> None:
        """Take over what was kept by others, such as the control plane that led before. Raises what `kept` raises."""
        with self._changing:
            self._replace(self._with_kept())

    def give(self, given: Given) -> None:
        """Take over values; those that a job has already are replaced. Raises UsageError when they are too many, and
        what `kept` and `keep` raise: then nothing is changed."""
        with self._changing:
            before = self._with_kept()
            merged = before | {job_id: {**before.get(job_id, {}), **new} for job_id, new in given.items()}
            if sum(map(len, _distinct(merged))) > MAX_TOTAL_CHARACTERS:
                raise UsageError(
                    "the control plane holds too many secrets already", hint="cancel jobs that are not needed any more"
                )
            self._keep(merged)
            self._replace(merged)
            for job_id in given:
                self._unknown_since_s.pop(job_id, None)

    def of(self, job: Job) -> dict[str, str]:
        """The values that the job names. Raises MissingSecret, whose text says how to give them."""
        given = self._given.get(job.id, {})
        names = job.spec.train.secrets
        missing = [name for name in names if name not in given]
        if missing:
            plural, them = ("s", "them") if len(missing) > 1 else ("", "it")
            raise MissingSecret(  # the remedy first: `queue` shows the beginning
                f"waits for `tradewind secrets give {job.name}`, run with its secret{plural} {', '.join(missing)} in "
                f"the environment: this control plane does not have {them}"
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

    def forget(self, installation: Installation) -> None:
        """Let go of the values of jobs that will never run again, and of those that nobody stored. Raises StoreError,
        and what `keep` raises."""
        ended, unknown = set(), set()
        with installation.store.read() as tx:
            for job_id in self._given:
                try:
                    if tx.outline(job_id).state in TERMINAL:
                        ended.add(job_id)
                except NotFoundError:
                    unknown.add(job_id)
        now_s = installation.clock.monotonic_s()
        if not self._changing.acquire(blocking=False):
            return  # next time: the control plane waits for nobody who gives
        try:
            since_s = {job_id: self._unknown_since_s.get(job_id, now_s) for job_id in unknown}
            gone = ended | {job_id for job_id in unknown if now_s - since_s[job_id] >= UNKNOWN_S}
            if gone:
                left = {job_id: values for job_id, values in self._given.items() if job_id not in gone}
                self._keep(left)
                self._replace(left)
            self._unknown_since_s = {job_id: since for job_id, since in since_s.items() if job_id not in gone}
        finally:
            self._changing.release()

    def _with_kept(self) -> dict[str, Mapping[str, str]]:
        return {**self._given, **self._kept()}

    def _replace(self, given: Given) -> None:
        named: dict[str, set[str]] = {}
        for values in given.values():
            for name, value in values.items():
                named.setdefault(name, set()).add(value)
        self._forms = {value: self._forms.get(value) or forms(value) for value in _distinct(given)}
        self._mask = Mask(named, forms_of=self._forms.__getitem__)  # of a value of several names one stands for all
        self._given = given


def _distinct(given: Given) -> set[str]:
    return {value for values in given.values() for value in values.values()}
