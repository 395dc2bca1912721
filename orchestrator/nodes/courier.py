"""Courier: transfers the code of a run to a machine with its own folders, and its log and outputs from there.

Two threads, so a large output does not delay the log, and a store that does not answer does not delay the machine's
lease and reports. Files that cannot be shipped wait on the machine's disk, and training goes on. Until the log and the
outputs of a run that ends are in the store, its last state is held back, because the control plane ends the machine
when it sees that state. A run that waits for its successor does not report so before its outputs are stored, because
the successor would go on without them. The control plane then gives up the move.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import SiteError
from orchestrator.nodes.fetching import Fetching
from orchestrator.nodes.log_pieces import PieceWriter, log_prefix, metrics_prefix
from orchestrator.nodes.messages import JobFiles
from orchestrator.nodes.outputs import OutputWriter
from orchestrator.nodes.unpacking import CodeError, unpacked
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore, is_key

Said = Mapping[str, object]

LOOK_S = 0.5
LOG_EVERY_S, METRICS_EVERY_S = 5.0, 30.0
"""How often a file that grows all the time is shipped to a bucket, where each put costs $0.000005."""
STUCK_S = 60.0
"""A run whose log or outputs cannot be stored counts as over after this long without progress."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_OVER = ("finished", "failed", "checkpointed_and_stopped")
_NOT_YET: Said = {"still_s": 0.0, "error": None, "weights_hash": None, "permanent": False}


class Courier:
    """The courier of one run. `say` prints to the machine's console."""

    def __init__(
        self,
        store: ObjectStore,
        files: JobFiles,
        run_id: str,
        folder: Path,
        say: Callable[[str], None],
        variables: Callable[[], Mapping[str, str]] = dict,
        *,
        look_s: float = LOOK_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store` is the job's store, `folder` a folder of the machine. `variables` give a process access to the
        checkpoints. Raises SiteError for names outside these folders."""
        job = files.place.rpartition("/")[2]
        if not is_key(run_id) or "/" in run_id or not is_key(job) or not is_key(files.code) or "/" in files.code:
            raise SiteError(
                f"the order for {run_id!r} has invalid folder names", hint="the control plane writes it again"
            )
        self._store, self._files, self._say, self._monotonic = store, files, say, monotonic
        self._look_s, self._variables = look_s, variables
        self._fetching: Fetching | None = None
        self._fetched = folder / "fetched" / run_id
        self.run_dir = folder / "runs" / run_id
        self._environments, self._code, self._outputs_dir = (
            folder / "environments",
            folder / "code",
            folder / "outputs" / job,
        )
        self._workdir: Path | None = None
        self._problem = self._full = ""
        self._complaint = ""
        self._calling = threading.Lock()  # held during calls to the outside: none happens after `close`
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._prepared: Callable[[], None] = _nothing
        self._spec: Said | None = None
        self._train: Callable[[Said], None] = lambda _spec: None
        self._wake = threading.Condition()
        self._wanted = self._logs = self._outputs = 0  # requested and completed shipments
        self._manifest: object = None
        self._last = "starting"
        self._over: str | None = None
        self._over_at = self._moved_at = monotonic()
        log = PieceWriter(store, log_prefix(run_id, files.rank), self.run_dir / "log")
        metrics = PieceWriter(store, metrics_prefix(run_id, files.rank), self.run_dir / "metrics.jsonl")
        self._trails = {log: LOG_EVERY_S, metrics: METRICS_EVERY_S}
        self._shipped_at = dict.fromkeys(self._trails, float("-inf"))

    def begin(self, prepared: Callable[[], None]) -> None:
        """Fetch the code, then call `prepared`; from now on, ship the log."""
        self._prepared = prepared
        self.run_dir.mkdir(parents=True, exist_ok=True)
        if self._files.ahead is not None:
            shared = self._files.machines > 1
            try:
                self._fetching = Fetching(self._files.ahead, self._fetched, self._variables(), self._say, shared=shared)
            except OSError as error:
                self._say(f"no checkpoints are fetched ahead of the restore: {error}")
        self._threads = [
            threading.Thread(target=work, name="courier", daemon=True) for work in (self._run_errands, self._ship_logs)
        ]
        for thread in self._threads:
            thread.start()

    def setup(self, ordered: Said) -> dict[str, object]:
        """The ordered set-up with this machine's folders. Only after `prepared` was called."""
        log = str(self.run_dir / "log")
        return {**ordered, "root": str(self._environments), "log": log, "workdir": str(self._workdir)}

    def train(self, ordered: Said, train: Callable[[Said], None]) -> None:
        """Once the code and the earlier outputs are here, call `train` with the ordered spec and this machine's
        folders."""
        with self._wake:
            self._train, self._spec = train, ordered
            self._wake.notify_all()

    def heard(self, said: Said | None) -> Said | None:
        """The run's own report, as the control plane should receive it."""
        if self._problem:
            return {"state": "failed", "error": self._problem, "setup_failed": True, "permanent": True}
        if self._full:
            return {"state": "failed", "error": self._full}
        if said is None or not isinstance(state := said.get("state"), str):
            return said
        said = self._with_fetching(said, state)
        if self._workdir is None and state == "prepared":
            return {**said, "state": "starting"}
        if said.get("manifest") != self._manifest:
            self._manifest = said.get("manifest")
            self.hurry()
        if state not in (*_OVER, "quiesced"):
            self._last, self._over = state, None
            return said
        if self._over != state:
            self._over, self._over_at = state, self._monotonic()
            self.hurry()
        if self._settled() or (state != "quiesced" and self._given_up(self._over_at)):
            return said
        return {**said, **_NOT_YET, "state": self._last, "ships": state in _OVER}

    def _with_fetching(self, said: Said, state: str) -> Said:
        """The run's report with the chunks fetched for it meanwhile."""
        fetching = self._fetching
        if fetching is None:
            return said
        if state in ("starting", "prepared"):
            return {**said, "fetching": fetching.busy, "fetched_bytes": fetching.fetched_bytes}
        if state != "restored":
            fetching.clear()
            self._fetching = None
        return said

    def hurry(self) -> None:
        """Ship everything now."""
        with self._wake:
            self._wanted += 1
            self._wake.notify_all()

    def close(self) -> None:
        """The run has ended: ship the rest and stop. Calls nothing outside any more."""
        with self._calling:
            self._closed = True
        if self._fetching is not None:
            self._fetching.clear()
        self.hurry()

    @property
    def done(self) -> bool:
        """Whether everything of a closed run is in the store or was given up."""
        return self._closed and not any(thread.is_alive() for thread in self._threads)

    # -- errands ----------------------------------------------------------------------------------------------------
    def _run_errands(self) -> None:
        if not self._attempted(self._fetch_code):
            return
        self._call(self._prepared)
        with self._wake:
            self._wake.wait_for(lambda: self._spec is not None or self._closed)
        spec = self._spec
        if spec is None or not isinstance(generation := spec.get("generation"), int):
            return
        machine = self._files.rank
        writer = OutputWriter(self._store, self._outputs_dir, generation, self._complain, self._moved, machine)
        if not self._attempted(writer.take_over):
            return
        folders = {"control_dir": self.run_dir / "control", "output_dir": self._outputs_dir, "workdir": self._workdir}
        if (fetching := self._fetching) is not None:
            fetching.stop()
            folders["fetched"] = self._fetched
        self._call(lambda: self._train({**spec, **{name: str(path) for name, path in folders.items()}}))
        self._ship_outputs(writer)

    def _fetch_code(self) -> None:
        try:
            self._workdir = unpacked(self._store, self._files.code, self._code)
        except CodeError as error:
            self._problem = f"{error} ({error.hint})"
        except OSError as error:
            if error.errno not in _NO_SPACE or self._fetching is not None:
                raise
            self._full = f"this machine's disk is full: the code of the job cannot be unpacked ({error})"

    def _ship_outputs(self, writer: OutputWriter) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._outputs < self._wanted)
                wanted, last = self._wanted, self._closed
            if not self._attempted(writer.ship):
                return
            self._outputs = wanted
            self._moved()
            if last:
                return

    def _attempted(self, work: Callable[[], None]) -> bool:
        """Repeat `work` until it succeeds; False if the run has ended and it has not for STUCK_S."""
        closed_at: float | None = None
        while True:
            try:
                work()
            except (ObjectStoreError, OSError) as error:
                self._tell(str(error))
                if isinstance(error, OSError) and error.errno in _NO_SPACE:
                    self._make_room()
            else:
                return not (self._problem or self._full)
            if self._closed:
                closed_at = self._monotonic() if closed_at is None else closed_at
                if self._given_up(closed_at):
                    return False
            with self._wake:
                self._wake.wait(4 * self._look_s)

    def _make_room(self) -> None:
        """Delete the chunks fetched ahead: the job can do without them, but not without disk space."""
        if (fetching := self._fetching) is not None:
            fetching.clear()
            fetching.join()
            self._fetching = None

    def _call(self, outside: Callable[[], None]) -> None:
        with self._calling:
            if not self._closed:
                outside()

    # -- logs -------------------------------------------------------------------------------------------------------
    def _ship_logs(self) -> None:
        closed_at: float | None = None
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._logs < self._wanted, timeout=self._look_s)
                wanted, closed = self._wanted, self._closed
            try:
                for each in self._trails:
                    if wanted == self._logs and not self._is_due(each):
                        continue
                    while each.waiting_bytes:
                        each.ship()
                        self._moved()
                        self._shipped_at[each] = self._moved_at
            except (ObjectStoreError, OSError) as error:
                self._tell(str(error))
                with self._wake:
                    self._wake.wait(4 * self._look_s)
            else:
                self._logs = wanted
                if closed:
                    return
            if closed:
                closed_at = self._monotonic() if closed_at is None else closed_at
                if self._given_up(closed_at):
                    return

    def _is_due(self, trail: PieceWriter) -> bool:
        every_s = self._trails[trail] if self._store.remote else self._look_s
        return self._monotonic() - self._shipped_at[trail] >= every_s

    # -- ends -------------------------------------------------------------------------------------------------------
    def _settled(self) -> bool:
        """Whether everything of a run that has ended or waits is in the store."""
        return self._logs == self._wanted and (self._spec is None or self._outputs == self._wanted)

    def _given_up(self, since: float) -> bool:
        return self._monotonic() - max(since, self._moved_at) > STUCK_S

    def _moved(self) -> None:
        self._moved_at = self._monotonic()

    def _complain(self, why: str) -> None:
        """Report it to the job's owner in the log."""
        with suppress(OSError), open(self.run_dir / "log", "a", errors="backslashreplace") as log:
            log.write(f"[an output is not stored: {why}]\n")

    def _tell(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            self._say(why)


def _nothing() -> None:
    """The callback until a caller waits for the code."""
