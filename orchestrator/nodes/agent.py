"""The agent of a rented machine, which the machine's user data starts.

    python -m orchestrator.nodes.agent STORE TOKEN TEMP_DIR [NODES]

STORE is the URL of the store of control objects, <store_root>/control/<installation>, TOKEN the machine's launch token,
TEMP_DIR a short path for Ray, NODES how many machines the launch has (nodes.seating). The boot token comes through a
pipe (nodes.handover), the machine's own folder is in $TRADEWIND_INSTANCE_DIR. A machine of another host is lent its
access to the store after it has introduced itself.

The agent starts the trainer's process, which loads its libraries, and meanwhile Ray. It polls its orders and carries
them out, reports the run's state, passes preemption notices on to it, and asks it to stop on SIGTERM. It renews the
run's lease as long as it exchanges messages with the store: a machine that cannot reach the store cannot commit a
checkpoint either, and the control plane gives it up when the lease has run out. It reports how the trainer ended if Ray
was alive at that time and this machine had not been asked to end: only then is the machine not the cause. When Ray
dies, the agent ends all processes of the machine, so no actor outlives it.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from orchestrator.config.private import PRIVATE_UMASK
from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.access.machine_access import Access, OwnAccess
from orchestrator.nodes.boot.contact import Contact
from orchestrator.nodes.channel import Channel, Garbled, Pace, places
from orchestrator.nodes.cluster import ALONE, Cluster
from orchestrator.nodes.courier import Courier
from orchestrator.nodes.crew import Crew
from orchestrator.nodes.handover import Handover
from orchestrator.nodes.joining import opened, say, take_part, unfit
from orchestrator.nodes.messages import NodeFacts, NodeReport, Order, RunOrder
from orchestrator.nodes.seating import (
    PeerUnreachable,
    Seat,
    free_port,
    instance_id,
    network_variables,
    remedy,
)
from orchestrator.nodes.session import end_machine
from providers import processes
from providers.errors import ProviderError
from providers.notice import Notice as Announced
from providers.notices import notices
from providers.procfs import own_children, process_start
from trainers.control import ControlDirectory, Notice, QuiesceOrder
from trainers.errors import ObjectStoreError, StoreDenied
from trainers.objects.base import ObjectStore
from trainers.process.prewarm import EXIT_FILE, SOCKET, write_exit_status

BOOT_ID = "TRADEWIND_BOOT"
REGISTERED = "registered"  # for the program that started this machine (nodes.boot.program)
EAGER_S = 5.0  # after an order or a change of state: the control plane waits for the next step
LOOK_S = 0.1
LAST_WORDS_S = 2.0  # for an ending machine to report it: its provider may learn it late, or not be able to report it
LEASE_EVERY_S = 1.0
START_ATTEMPTS = 3  # Ray misses its own fixed start limits on a busy machine
START_PAUSE_S, START_LOOK_S = 0.5, 0.1
END_TRAINER_S = 5.0
LOG_PUMP, PUMP_S = b"trainers.process.log_pump", 5.0  # it ends when all its writers have ended
if TYPE_CHECKING:
    from nacl.public import PrivateKey

_VOLATILE = ("still_s", "notice_s")


class Machine:
    """The trainer's processes on this machine, one after the other: each executes one run.

    All processes that a trainer started end with it, even detached ones: beside the next run, they would go on
    training, use memory and write outputs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._changing = threading.Lock()
        self._mark = ""
        self.process = self._started()
        self._reported = False

    def command(self) -> list[str]:
        """The command of the trainer's process."""
        return [sys.executable, "-m", "trainers.process.prewarm", str(self.folder)]

    def _started(self) -> subprocess.Popen[bytes]:
        """Start a process for the next run, which loads its libraries."""
        for left in (SOCKET, EXIT_FILE):
            (self.folder / left).unlink(missing_ok=True)
        self._mark = secrets.token_hex(16)
        started = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL)
        processes.mark(started.pid, self._mark)  # it runs no code of a job before its order
        return started

    def look(self, *, blameless: bool) -> None:
        """When the trainer has ended, end its remaining processes. If the machine is `blameless`, also record once how
        the trainer ended. Raises UnavailableError."""
        with self._changing:
            status = self.process.poll()
            if status is not None and not self._reported:
                self._reported = True
                if blameless:
                    write_exit_status(self.folder, status)
                self._end_left()

    def renew(self) -> None:
        """A trainer process for another run; ends the previous one if it is still alive. Raises UnavailableError, and
        starts none, if a process of the previous run does not end."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=END_TRAINER_S)
        self.end()
        with self._changing:  # otherwise its end would count as that of the next run
            self.process, self._reported = self._started(), False

    def end(self) -> None:
        """End the trainer and its remaining processes. Raises UnavailableError."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._end_left()

    def _end_left(self) -> None:
        processes.kill_marked(self._mark, spared=LOG_PUMP, spared_s=PUMP_S)


class Agent:
    """Carries out the orders of one machine's channel."""

    def __init__(
        self,
        channel: Channel,
        pace: Pace,
        crew: Crew,
        machine: Machine,
        access: Access | None = None,
        root: ObjectStore | None = None,
        key: PrivateKey | None = None,
        contact: Contact | None = None,
        seat: Seat = ALONE,
    ) -> None:
        """`access`: how this machine reaches the store. A machine that is not yet admitted has a `contact`; its access
        is sealed to `key`. `root`: the store of code, logs and outputs, for a machine with its own folders."""
        self._seat, self._network = seat, network_variables(seat)
        self._channel, self._pace, self._crew, self._machine = channel, pace, crew, machine
        self._access, self._root = OwnAccess({}) if access is None else access, root
        self._contact = contact
        self._key = sealing.new_key() if key is None else key
        self._boot = secrets.token_hex(8)
        where = os.environ.get("TRADEWIND_METADATA")
        self._notices = None if where is None else notices(where)
        self._stopping = self._hurried = False
        self._used = False  # whether the trainer's process was given to a run
        self._seen = b""
        self._complaint = ""
        self._order: Order | None = None
        self._run: RunOrder | None = None
        self._control: ControlDirectory | None = None
        self._courier: Courier | None = None
        self._leaving: Courier | None = None  # courier of the previous run, which still ships its log and outputs
        self._followed = 0  # the number of the newest order that was carried out
        self._noticed: Announced | None = None
        self._beat = 0
        self._urgent: tuple[object, ...] = ()
        self._reported: object = None
        self._reported_at = self._leased_at = self._eager_until = 0.0
        self._renewed_at = time.monotonic()

    def introduce(self, token: str, ray: str = "") -> bool:
        """Publish this start of the agent, with as many attempts as needed; `ray` is the address at which the run's
        other machines join. False if the machine has started before (a reboot, or two starts), because another start
        may be training the run, or if the store refuses for good. In both cases the machine ends."""
        public = sealing.public_half(self._key)
        facts = NodeFacts(self._boot, public, sealing.proof(token, self._boot, public))
        if self._seat.nodes > 1:
            address, port = self._seat.address, free_port(self._seat.address)
            facts = replace(facts, instance=instance_id(), address=address, ray=ray, master_port=port)
        while True:
            try:
                if (self._contact or self._channel).put_facts(facts):
                    return True
                say("this machine has started before, so it ends now")
                return False
            except ObjectStoreError as error:
                say(str(error))
                if self._contact is not None and isinstance(error, StoreDenied):
                    return False
                time.sleep(1.0)

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Ask the run to save a checkpoint and end. A signal handler."""
        self._stopping = True
        if self._control is not None:
            self._control.request_stop()

    def talk(self, ended: threading.Event) -> None:
        """Exchange messages until the machine ends. Runs in its own thread: a store may take long to answer."""
        if self._contact is not None and not self._let_in(self._contact, ended):
            return
        while not ended.wait(self._pace.eager_s if time.monotonic() < self._eager_until else self._pace.poll_s):
            self.exchange()
        self._attempt(lambda: self._report(time.monotonic()))  # the result of the run

    def _let_in(self, contact: Contact, ended: threading.Event) -> bool:
        """Wait for access to the store. False if it will get none: the machine then ends."""
        while True:
            try:
                sealed = contact.access()
                if sealed is not None:
                    self._access.take(sealed)
                    return True
            except StoreDenied as error:
                say(str(error))
                ended.set()
                return False
            except (ObjectStoreError, SiteError) as error:
                say(str(error))
            if ended.wait(self._pace.eager_s):
                return False

    def exchange(self) -> None:
        """Exchange messages with the store once, and act on them."""
        self._attempt(lambda: self._access.refresh(self._channel.access))
        began = time.monotonic()
        heard = self._attempt(self._listen)
        reported = self._attempt(lambda: self._report(began))
        if heard and reported:
            self._renewed_at = max(self._renewed_at, began - self._unheard_s())

    def _unheard_s(self) -> float:
        """For how long the run's actor has not answered: the control plane counts that as silence, so the lease is not
        renewed meanwhile."""
        return 0.0 if self._run is None else self._crew.heard(self._run.run_id)[1]

    def look(self) -> None:
        """Look after the run with the facts known on this machine."""
        try:
            self._machine.look(blameless=not self._stopping)
            self._carry_notice()
            if self._stopping and not self._hurried and self._courier is not None:
                self._hurried = True  # the provider ends this machine: this may be the run's last output
                self._courier.hurry()
            self._renew_lease(time.monotonic())
        except (OSError, ProviderError) as error:  # a full disk: without a renewed lease, the run stops by itself
            say(str(error))

    def _attempt(self, exchange: Callable[[], None]) -> bool:
        """Run `exchange` and return whether it succeeded. If not, the machine's console shows the reason, once."""
        try:
            exchange()
        except (ObjectStoreError, Garbled, SiteError, OSError, ProviderError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                say(str(error))
            return False
        return True

    def _listen(self) -> None:
        """Follow a new order, or raise and read it again."""
        seen, order = self._channel.ordered(self._seen)
        if order is not None:
            self._eager_until = time.monotonic() + EAGER_S
            self._carry_out(order)
        self._seen = seen

    def _carry_out(self, order: Order) -> None:
        now = self._order
        if now is not None and (order.epoch, order.number) < (now.epoch, now.number):
            raise Garbled(f"order {order.number} is older than order {now.number}, which is being carried out")
        before, run = self._run, order.run
        if before is not None and (run is None or run.run_id != before.run_id):
            self._crew.end()
            if self._courier is not None:
                self._courier.close()
                self._leaving = self._courier
            self._run = self._control = self._courier = before = None
        if run is not None:
            begins, trains = before is None, run.spec is not None and (before is None or before.spec is None)
            secrets = self._secrets(run) if trains or (begins and run.setup is not None) else {}
            if before is None:
                self._begin(run, secrets)
            self._follow(run, before, secrets)
        self._run, self._order = run, order

    def _begin(self, run: RunOrder, secrets: Mapping[str, str]) -> None:
        if self._used:
            self._machine.renew()
        self._used, self._noticed = True, None
        self._courier, self._hurried = self._couriered(run), False
        courier = self._courier
        run_dir = Path(run.run_dir) if courier is None else courier.run_dir
        self._control = ControlDirectory(run_dir / "control")
        self._control.path.mkdir(parents=True, exist_ok=True)
        if self._stopping:
            self._control.request_stop()
        self._crew.begin(run.run_id, str(run_dir), with_setup=run.setup is not None)
        setup = run.setup
        if courier is not None:
            courier.begin(lambda: None if setup is None else self._crew.set_up(courier.setup(setup), secrets))
        elif setup is not None:
            self._crew.set_up(setup, secrets)

    def _couriered(self, run: RunOrder) -> Courier | None:
        """Raises SiteError."""
        if run.files is None:
            return None
        if self._root is None:
            raise SiteError("this machine has no store for the files of jobs", hint="the job continues elsewhere")
        place, folder = self._root.child(run.files.place), self._machine.folder
        return Courier(place, run.files, run.run_id, folder, say, self._store_variables)

    def _store_variables(self) -> Mapping[str, str]:
        """The environment of a process that reads the store."""
        return {**os.environ, **self._access.variables()}

    def _follow(self, run: RunOrder, before: RunOrder | None, secrets: Mapping[str, str]) -> None:
        """Carry out the differences between an order and the one `before` it for the same run."""
        assert self._control is not None
        if run.spec is not None and (before is None or before.spec is None):
            in_bucket = "://" in str(run.spec.get("checkpoint_root", ""))
            values = {**self._access.variables(), **secrets} if in_bucket else secrets
            own = run.spec.get("env")
            ordered = {**run.spec, "env": {**self._network, **(own if isinstance(own, Mapping) else {})}}
            if self._courier is None:
                self._crew.train(ordered, values)
            else:
                self._courier.train(ordered, lambda spec: self._crew.train(spec, values))
        if run.hold is None:
            self._control.clear_quiesce()
        elif before is None or run.hold != before.hold:
            self._control.put_quiesce(QuiesceOrder(time.monotonic() + run.hold.for_s, run.hold.successor))
        if run.risk is not None and (before is None or run.risk != before.risk):
            self._control.put_risk(run.risk)
        if run.stop:
            self._control.request_stop()
        if before is not None and run.stacks != before.stacks:
            self._crew.show_stacks()

    def _secrets(self, run: RunOrder) -> dict[str, str]:
        """Raises SiteError until the grant that the order names arrives."""
        if run.grant is None:
            return {}
        sealed = self._channel.grant(run.grant)
        if sealed is None or sealing.digest(sealed) != run.grant:
            raise SiteError(f"the secrets of {run.run_id} have not arrived", hint="the machine reads the order again")
        return sealing.opened(self._key, sealed, run.run_id)

    def _report(self, now: float) -> None:
        """Report news, or otherwise that this machine is alive."""
        run_id = None if self._run is None else self._run.run_id
        said, ago_s = (None, 0.0) if run_id is None else self._crew.heard(run_id)
        if self._courier is not None and (passed := self._courier.heard(said)) is not said:
            said, self._eager_until = passed, now + EAGER_S
        if self._run is not None or self._leaving is None or self._leaving.done:
            self._followed = 0 if self._order is None else self._order.number
        number = self._followed
        deadline_s = None if self._noticed is None else self._noticed.deadline_monotonic_s
        if said is not None and deadline_s is not None:
            said = {**said, "notice_s": max(0.0, deadline_s - now)}
        news = {} if said is None else said
        urgent = (number, run_id, news.get("state"), news.get("manifest"), deadline_s)
        steady = {name: value for name, value in news.items() if name not in _VOLATILE}
        pause_s = self._pace.news_s if steady != self._reported else self._pace.beat_s
        if urgent == self._urgent and now - self._reported_at < pause_s:
            return
        if urgent != self._urgent:
            self._eager_until = now + EAGER_S
        self._beat += 1
        self._channel.put_report(NodeReport(self._boot, self._beat, number, run_id, said, ago_s))
        self._urgent, self._reported, self._reported_at = urgent, steady, now

    def _carry_notice(self) -> None:
        """Pass a preemption notice, or a warning before it, on to the run, once."""
        control = self._control
        if self._notices is None or control is None:
            return
        try:
            notice = self._notices()
        except ProviderError:
            return  # missing or damaged: the machine then ends without a notice
        if notice is not None and notice != self._noticed:
            if notice.deadline_monotonic_s is None:
                control.warn()
            else:
                control.put_notice(Notice(notice.kind, notice.deadline_monotonic_s))
            self._noticed = notice
            if self._courier is not None:
                self._courier.hurry()

    def _renew_lease(self, now: float) -> None:
        """Renew the lease: a run may train for its length from the last exchange with the store."""
        control, order = self._control, self._order
        if control is not None and order is not None and now - self._leased_at >= LEASE_EVERY_S:
            self._leased_at = now
            control.put_lease(self._renewed_at + order.lease_s)


def main(url: str, token: str, temp_dir: str, nodes: str = "1", attempt: str = "1") -> int:
    """Run the agent until Ray dies. Returns an exit code."""
    os.umask(PRIVATE_UMASK)
    given, key = Handover.taken(), sealing.new_key()
    os.environ.setdefault(BOOT_ID, secrets.token_hex(8))  # further attempts to start Ray belong to the same boot
    machine = Machine(Path(os.environ["TRADEWIND_INSTANCE_DIR"]))
    contact = None if given.urls is None else Contact(given.urls)
    seat, place = ALONE, token
    try:
        if nodes != "1":
            taken = take_part(url, token, int(nodes), given, os.environ[BOOT_ID])
            if taken is None:
                say("this machine has started before, or its run already has all its machines, so it ends now")
                end_machine()
                return 1
            seat, contact = taken
            place = places(token, int(nodes))[seat.rank]
    except (PeerUnreachable, StoreDenied, SiteError) as error:
        unfit(given, str(error))
        end_machine()
        return 1
    store, root, access = opened(url, place, given, key)
    cluster = Cluster(Path(temp_dir), seat)
    ended = threading.Event()

    def failed(why: str) -> None:
        if seat.rank > 0 and not cluster.joined:
            why = (
                f"machine {seat.rank} ({instance_id()}) lost contact with machine 0, whose Ray listens at "
                f"{seat.head}: {why}. Unless that machine has ended, it cannot connect to this one at {seat.address}. "
                f"{remedy()}"
            )
        if not cluster.up:
            start_again(nodes, int(attempt), why, given)
        if seat.rank > 0 and not cluster.gathered:
            unfit(given, why)
        else:
            say(why)
        ended.set()

    crew = Crew(cluster, failed)
    threading.Thread(target=watch_start, args=[cluster, failed], daemon=True).start()
    crew.start()
    agent = Agent(Channel(store, place), Pace.of(store), crew, machine, access, root, key, contact, seat)
    signal.signal(signal.SIGTERM, agent.stop)
    # A failed start is repeated with another key, because published facts are final. Other machines have to find
    # machine 0.
    while not (cluster.up if seat.rank == 0 else cluster.gathered or ended.is_set()):
        time.sleep(START_LOOK_S)
    if not ended.is_set() and agent.introduce(given.boot_token, cluster.address):
        (machine.folder / REGISTERED).touch()
        talking = threading.Thread(target=agent.talk, args=[ended], name="talk", daemon=True)
        talking.start()
        while not ended.wait(LOOK_S):
            agent.look()
        talking.join(LAST_WORDS_S)
    end_machine()
    return 1


def watch_start(cluster: Cluster, failed: Callable[[str], None]) -> None:
    """Notice at once if a process of this machine dies while Ray starts: Ray itself waits half a minute for it."""
    while not cluster.up:
        if any(process_start(pid) is None for pid in own_children()) and not cluster.up:
            failed("one of its processes died")
        time.sleep(START_LOOK_S)


def start_again(nodes: str, attempt: int, why: str, given: Handover) -> NoReturn:
    """Restart this process in the same session with the same input, or end it after START_ATTEMPTS."""
    say(f"start {attempt} of {START_ATTEMPTS} failed: {why}")
    end_machine()  # leftovers of the attempt
    with suppress(ChildProcessError):
        while os.waitpid(-1, 0):  # the next attempt must not see these as its own children
            pass
    if attempt >= START_ATTEMPTS:
        unfit(given, f"Ray could not be started: {why}")
        os._exit(1)  # other threads may still be waiting for Ray
    time.sleep(START_PAUSE_S)
    given.pass_on(["-m", "orchestrator.nodes.agent", *sys.argv[1:4], nodes, str(attempt + 1)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
