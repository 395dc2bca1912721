"""Secret values: the values of jobs' secrets, held in memory while this process lives.

They may also be kept elsewhere (orchestrator.services.secrets.file), but never in the store. Any thread may supply
values; reading them and masking text never block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from operator import attrgetter

from orchestrator.errors import NotFoundError, TradewindError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Job
from trainers.process.masking import Mask, forms

MAX_TOTAL_CHARACTERS = 512 << 10  # of all jobs, each value once: the masked forms take about 50 times as much memory
UNKNOWN_S = 600.0
"""Values arrive before their job is stored. They are dropped if the job is not stored within this time: the submitter
was killed in between. In real seconds, counted from the first check (engine.control.FORGET_EVERY_S)."""

TypedName = Callable[[Job], str]
Given = Mapping[str, Mapping[str, str]]
"""Job id -> name -> value."""


class MissingSecret(TradewindError):
    """The control plane lacks a secret that the job needs. The job waits; this is not a failure."""


class SecretValues:
    """Secret values by job: two jobs with a secret of the same name each have their own value."""

    def __init__(
        self, *, kept: Callable[[], Given] = dict, keep: Callable[[Given], None] = lambda _given: None
    ) -> None:
        """`keep` saves all values elsewhere, and `kept` reads them back. Raises what `kept` raises."""
        self._kept = kept
        self._keep = keep
        self._changing = threading.Lock()  # held to replace the fields below; readers need no lock
        self._given: Given = {}
        self._forms: Mapping[str, frozenset[bytes]] = {}
        self._mask = Mask({})
        self._unknown_since_s: dict[str, float] = {}
        self.read_kept()

    def read_kept(self) -> None:
        """Load values kept by another process, such as the previous leader. Raises what `kept` raises."""
        with self._changing:
            self._replace(self._with_kept())

    def give(self, given: Given) -> None:
        """Add values, replacing those that a job already has. Raises UsageError if they are too many, and what `kept`
        and `keep` raise; nothing is changed then."""
        with self._changing:
            before = self._with_kept()
            merged = before | {job_id: {**before.get(job_id, {}), **new} for job_id, new in given.items()}
            if sum(map(len, _distinct(merged))) > MAX_TOTAL_CHARACTERS:
                raise UsageError(
                    "the control plane already holds too many secrets", hint="cancel jobs that are no longer needed"
                )
            self._keep(merged)
            self._replace(merged)
            for job_id in given:
                self._unknown_since_s.pop(job_id, None)

    def of(self, job: Job, typed_name: TypedName = attrgetter("name")) -> dict[str, str]:
        """The values of the job's secrets. Raises MissingSecret, whose message says how to supply them: `typed_name`
        returns the name or id to use for the job in commands."""
        given = self._given.get(job.id, {})
        names = job.spec.train.secrets
        missing = [name for name in names if name not in given]
        if missing:
            plural, them = ("s", "them") if len(missing) > 1 else ("", "it")
            raise MissingSecret(  # the remedy comes first: `queue` shows only the beginning
                f"waits for `tradewind secrets give {typed_name(job)}`, run with its secret{plural} "
                f"{', '.join(missing)} in the environment: this control plane does not have {them}"
            )
        return {name: given[name] for name in names}

    def missing(self, job: Job, typed_name: TypedName = attrgetter("name")) -> str | None:
        """Which secret is missing and what to do; None if no secret is missing."""
        try:
            self.of(job, typed_name)
        except MissingSecret as error:
            return str(error)
        return None

    def mask(self, text: str) -> str:
        """`text` with all secret values masked. Trainers mask their own output, but nodes are not trusted."""
        return self._mask.text(text)

    def forget(self, installation: Installation) -> None:
        """Drop the values of jobs that have ended, and those whose job was never stored. Raises StoreError, and what
        `keep` raises."""
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
            return  # dropped next time: the control plane does not wait for submitters
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
        self._mask = Mask(
            named, forms_of=self._forms.__getitem__
        )  # a value with several names is masked as one of them
        self._given = given


def _distinct(given: Given) -> set[str]:
    return {value for values in given.values() for value in values.values()}
