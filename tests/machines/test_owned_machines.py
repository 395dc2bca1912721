"""Machines that people own, on real hosts and in real time: what the conformance kit does not ask."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from providers.base import LaunchSpec
from providers.clock import SystemClock, VirtualClock
from providers.errors import (
    AuthError,
    CapacityError,
    CutOffError,
    ProviderError,
    SetupError,
    TimedOutError,
    UnavailableError,
)
from providers.instance import EndReason, Instance, InstanceState
from providers.static import StaticProvider
from providers.static import ssh as ssh_module
from providers.static.hosts import read_hosts
from tests.machines.lab import USER, Host, Kind, Laboratory, laboratory
from tests.machines.owned import declared

NVIDIA_SMI = "#!/bin/bash\necho 'NVIDIA GeForce RTX 4090'\necho 'NVIDIA GeForce RTX 4090'\n"
SHARES = """
python3 -c '
import mmap, os, sys, time
for name, open_still in (("shm-of-killed", True), ("shm-of-another", True)):
    file = os.open("/dev/shm/" + name, os.O_RDWR | os.O_CREAT)
    os.truncate(file, 4096)
    kept = mmap.mmap(file, 4096)
    os.close(file)
    globals()[name] = kept
time.sleep(1001)'
"""
OLD_PYTHON = '#!/bin/bash\necho \'tradewind-host:{"error": "python", "message": "3.8"}\'\n'
OTHER_PYTHON = "#!/bin/bash\nexec setarch i686 python3 -\n"
ESCAPES = """
set -m
sleep 1001 &
setsid sleep 1002 &
(setsid bash -c 'cd /; exec env -i sleep 1003' &)
exec sleep 1004
"""
_numbers = itertools.count()


def until(reached: Callable[[], object], patience_s: float = 60.0) -> None:
    give_up = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    killed = "#!/bin/bash\nkill -9 $$\n"
    programs = {"python-killed": killed, "nvidia-smi": NVIDIA_SMI, "python3.8": OLD_PYTHON, "python32": OTHER_PYTHON}
    bare = Kind(python=False, system_programs=("bash", "ls"))
    small = Kind(disk="1m")
    others = {name: Kind() for name in ("two", "asks", "greets", "fixed")}
    with laboratory({"one": Kind(programs=programs), "bare": bare, "small": small, **others}) as lab:
        yield lab


@pytest.fixture(autouse=True)
def in_office(lab: Laboratory) -> Iterator[None]:
    with lab.in_office():
        yield
    for host in lab.hosts.values():
        host.kill_all()


class Owner:
    """One installation that declares hosts of the laboratory."""

    def __init__(self, lab: Laboratory, state: Path, *names: str, install: str = "tw-1", **options: object) -> None:
        self.install = install
        options = {"folder": f"~/owned-{next(_numbers)}", **options}
        self.hosts = read_hosts(declared(lab, *names, **options))
        self.state = state / install
        self.cloud = self.connect()

    def connect(self) -> StaticProvider:
        return StaticProvider(self.hosts, self.state, SystemClock())

    def spec(self, host: str = "one", token: str = "token", **changes: object) -> LaunchSpec:
        offer = next(each.offer.id for each in self.hosts if each.name == host)
        return replace(LaunchSpec(token, offer, ESCAPES, {"tradewind-install": self.install}), **changes)

    def launch(self, *arguments: str, **changes: object) -> str:
        (instance_id,) = self.cloud.launch(self.spec(*arguments, **changes))
        return instance_id

    def instance(self, instance_id: str) -> Instance:
        (found,) = self.cloud.describe([instance_id])
        return found


@pytest.fixture
def owner(lab: Laboratory, tmp_path: Path) -> Owner:
    return Owner(lab, tmp_path, "one")


def sleeping(host: Host) -> int:
    return sum("sleep 100" in command for command in host.processes().values())


def sleeps(host: Host, count: int) -> None:
    until(lambda: sleeping(host) == count)


# --- life and death ---


def test_the_end_of_a_machine_takes_all_that_it_started(lab: Laboratory, owner: Owner) -> None:
    machine = owner.launch()
    sleeps(lab.hosts["one"], 4)
    owner.cloud.terminate(machine)
    assert lab.hosts["one"].processes() == {}
    assert owner.instance(machine).end_reason is EndReason.USER
    left = lab.hosts["one"].run(f"ls {owner.hosts[0].folder}/machines/{machine}").stdout.split()
    assert left == ["beat", "ended", "ending", "output.log", "record.json", "supervisor"]


def test_the_host_ends_a_machine_whose_time_to_live_runs_out(lab: Laboratory, owner: Owner) -> None:
    machine = owner.launch(time_to_live_s=2)
    sleeps(lab.hosts["one"], 4)
    until(lambda: not lab.hosts["one"].processes())  # nobody asks
    ended = owner.instance(machine)
    assert ended.end_reason is EndReason.EXPIRED
    assert ended.billed_to_ms - ended.billed_from_ms == 2000


def test_nothing_that_tidies_up_deletes_old_temporary_files_of_a_living_machine(lab: Laboratory, owner: Owner) -> None:
    """As systemd-tmpfiles asks: it skips a folder that it cannot lock."""
    machine = owner.launch()
    tidy = "flock --exclusive --nonblock /tmp/tw-* true"
    assert lab.hosts["one"].run(tidy, check=False).returncode == 1
    owner.cloud.terminate(machine)
    assert lab.hosts["one"].run("ls /tmp").stdout == ""


def test_shared_memory_of_killed_processes_is_freed_and_that_of_others_stays(lab: Laboratory, owner: Owner) -> None:
    host = lab.hosts["one"]
    host.run("touch /dev/shm/of-nobody")
    machine = owner.launch(user_data=SHARES)
    until(lambda: "shm-of-another" in host.run("ls /dev/shm").stdout)
    other = "setsid python3 -c 'import time; kept = open(\"/dev/shm/shm-of-another\"); time.sleep(1002)'"
    host.run(f"{other} > /dev/null 2>&1 < /dev/null &")
    until(lambda: "1002" in str(host.processes()))
    owner.cloud.terminate(machine)
    assert host.run("ls /dev/shm").stdout.split() == ["of-nobody", "shm-of-another"]
    host.run("rm /dev/shm/*")


def test_a_machine_whose_last_process_has_ended_has_failed(lab: Laboratory, owner: Owner) -> None:
    machine = owner.launch(user_data="setsid sleep 1001 & exit 3")
    sleeps(lab.hosts["one"], 1)
    assert owner.instance(machine).state is InstanceState.RUNNING  # a daemon of it lives
    lab.hosts["one"].run("pkill -x sleep")
    until(lambda: not lab.hosts["one"].processes())
    assert owner.instance(machine).end_reason is EndReason.FAILED


def test_killing_the_watching_process_ends_the_machine(lab: Laboratory, owner: Owner) -> None:
    machine = owner.launch()
    sleeps(lab.hosts["one"], 4)
    (watching,) = [pid for pid, command in lab.hosts["one"].processes().items() if "-I" in command]
    os.kill(watching, 9)
    assert owner.instance(machine).end_reason is EndReason.FAILED
    assert lab.hosts["one"].processes() == {}


def test_a_rebooted_host_has_lost_its_machines(lab: Laboratory, owner: Owner) -> None:
    machine = owner.launch()
    lab.hosts["one"].reboot()
    ended = owner.connect().describe([machine])[0]
    assert ended.end_reason is EndReason.FAILED
    assert ended.billed_to_ms >= ended.billed_from_ms
    assert owner.launch(token="another") != machine  # its slot is free again


def test_the_bill_is_what_the_host_measured_however_wrong_its_wall_clock_is(lab: Laboratory, owner: Owner) -> None:
    clock = VirtualClock()
    machine = owner.launch(time_to_live_s=1)
    until(lambda: not owner.instance(machine).alive)
    hour_later = StaticProvider(owner.hosts, owner.state, clock)
    clock.advance(3600)
    assert list(hour_later.describe([machine])) == [owner.instance(machine)]


def test_parallel_launches_with_one_token_start_one_machine(lab: Laboratory, owner: Owner) -> None:
    found: list[str] = []

    def launch() -> None:
        (instance_id,) = owner.connect().launch(owner.spec())
        found.append(instance_id)

    threads = [threading.Thread(target=launch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1
    sleeps(lab.hosts["one"], 4)


def test_a_launch_whose_answer_is_lost_is_found_and_repeated(
    lab: Laboratory, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_module, "answer_in", lambda output: None)
    with pytest.raises(ProviderError):
        owner.cloud._ssh.ask(owner.hosts[0], owner.cloud._launch_request(owner.hosts[0], owner.spec(), 1, "print", 5))
    monkeypatch.undo()
    (found,) = owner.connect().find("token", "one")
    assert found.alive
    assert owner.cloud.list_owned("tw-1") == [found]


def test_a_request_that_is_killed_on_the_host_is_no_host_that_cannot_be_reached(
    lab: Laboratory, tmp_path: Path
) -> None:
    owner = Owner(lab, tmp_path, "one", python="python-killed")
    with pytest.raises(CutOffError, match="one gave no answer"):
        owner.cloud.list_owned("tw-1")


# --- several hosts, several owners ---


def test_two_installations_share_the_slots_of_a_host_and_end_only_their_own(lab: Laboratory, tmp_path: Path) -> None:
    first = Owner(lab, tmp_path, "one", install="tw-1", slots=2)
    second = Owner(lab, tmp_path, "one", install="tw-2", slots=2)
    machines = [first.launch(), second.launch()]
    with pytest.raises(CapacityError, match="all slots of one are in use"):
        first.launch(token="third")
    assert [each.id for each in first.cloud.list_owned("tw-1")] == machines[:1]
    assert not first.cloud.list_owned("tw-2")
    assert not first.cloud.describe([machines[1]])
    first.cloud.terminate(machines[0])
    first.cloud.terminate(machines[1])
    sleeps(lab.hosts["one"], 4)
    assert second.instance(machines[1]).alive
    assert first.launch(token="fourth")


def test_two_installations_with_one_folder_are_kept_apart_by_their_tags(lab: Laboratory, tmp_path: Path) -> None:
    first = Owner(lab, tmp_path, "one", install="tw-1", slots=2, folder="~/common")
    second = Owner(lab, tmp_path, "one", install="tw-2", slots=2, folder="~/common")
    machines = [first.launch(), second.launch()]
    assert machines[0] != machines[1]
    assert [each.id for each in second.cloud.list_owned("tw-2")] == machines[1:]


def test_machines_of_one_offer_are_spread_over_its_hosts_all_or_none(lab: Laboratory, tmp_path: Path) -> None:
    owner = Owner(lab, tmp_path, "one", "two", region="lab")
    assert len(owner.cloud.offers()) == 1
    machines = owner.cloud.launch(owner.spec(count=2))
    assert [each.partition("-")[2].partition("-")[0] for each in machines] == ["one", "two"]
    assert owner.connect().launch(owner.spec(count=2)) == machines
    with pytest.raises(CapacityError):
        owner.launch(token="third")
    with pytest.raises(CapacityError, match=r"has 2 machines \(one, two\), and the job wants 3 at once") as raised:
        owner.cloud.launch(owner.spec(token="more", count=3))
    assert "resources.nodes" in raised.value.hint
    owner.cloud.terminate(machines[1])
    with pytest.raises(CapacityError, match=r"fewer slots of one, two are free \(1\)"):
        owner.cloud.launch(owner.spec(token="fourth", count=2))
    assert not owner.cloud.find("fourth", "lab")
    sleeps(lab.hosts["two"], 0)


def test_a_host_that_does_not_answer_blocks_and_hides_no_other(
    lab: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(lab, tmp_path, "one", "two", region="lab")
    first, second = owner.cloud.launch(owner.spec(count=2))
    owner.cloud.describe([first, second])
    lab.isolate(lab.hosts["two"])
    monkeypatch.setattr(ssh_module, "CALL_S", 3.0)
    try:
        assert [each.id for each in owner.cloud.describe([first, second])] == [first, second]
        assert {each.id for each in owner.cloud.list_owned("tw-1")} == {first, second}
        with pytest.raises(TimedOutError):
            owner.cloud.describe([second])
        with pytest.raises(UnavailableError):
            owner.connect().find("another", "lab")
        owner.cloud.terminate(first)
        assert owner.launch(token="next").startswith("static-one-")
    finally:
        monkeypatch.undo()
        lab.rejoin(lab.hosts["two"])
    assert owner.cloud.describe([second])
    sleeps(lab.hosts["two"], 4)


def commands() -> dict[int, str]:
    """Pid -> command of the processes outside the laboratory."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


def test_a_shared_connection_that_hangs_is_replaced(
    lab: Laboratory, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_module, "CALL_S", 2.0)
    machine = owner.launch()
    title = f"ssh: {owner.cloud._ssh._socket(owner.hosts[0])} [mux]"
    (master,) = [pid for pid, command in commands().items() if command == title]
    os.kill(master, signal.SIGSTOP)
    with pytest.raises(TimedOutError):
        owner.cloud.describe([machine])
    assert owner.instance(machine).alive
    assert commands().get(master) != title
    owner.cloud.terminate(machine)


# --- bad input: a named error with its remedy, and nothing left running ---


def refused(lab: Laboratory, folder: Path, kind: type[ProviderError], said: str, hint: str, **options: object) -> None:
    host = str(options.pop("host", "one"))
    owner = Owner(lab, folder, host, **options)
    with pytest.raises(kind, match=said) as raised:
        owner.launch(host)
    assert hint in raised.value.hint
    assert sleeping(lab.hosts[host]) == 0
    with pytest.raises(ProviderError, match=said):
        owner.cloud.examine(host)


def test_a_refused_key(lab: Laboratory, tmp_path: Path) -> None:
    key = tmp_path / "other"
    os.system(f"ssh-keygen -q -t ed25519 -N '' -f {key}")
    refused(lab, tmp_path, AuthError, "one refuses the key", f"ssh-copy-id -i {key} ada@", key_file=str(key))


def test_a_key_that_others_can_read(lab: Laboratory, tmp_path: Path) -> None:
    key = tmp_path / "open"
    key.write_text(lab.key.read_text())
    key.chmod(0o644)
    refused(lab, tmp_path, AuthError, "can be read by others", f"chmod 600 {key}", key_file=str(key))


def test_a_missing_key(lab: Laboratory, tmp_path: Path) -> None:
    refused(lab, tmp_path, AuthError, "cannot be read", "correct key_file", key_file=str(tmp_path / "none"))


def test_an_unknown_host_key(lab: Laboratory, tmp_path: Path) -> None:
    empty = tmp_path / "known"
    refused(lab, tmp_path, AuthError, "host key of one .* is not known", "log in once", known_hosts=str(empty))


def test_a_changed_host_key(lab: Laboratory, tmp_path: Path) -> None:
    wrong = (lab.folder / "two-key.pub").read_text().rsplit(" ", 1)[0]
    refused(
        lab, tmp_path, AuthError, "host key of one .* has changed", "correct host_key", host_key=wrong, known_hosts=None
    )


def test_a_declared_host_key_is_accepted(lab: Laboratory, tmp_path: Path) -> None:
    right = " ".join((lab.folder / "one-key.pub").read_text().split()[:2])
    assert Owner(lab, tmp_path, "one", host_key=right, known_hosts=None).cloud.examine("one")


def test_a_new_host_key_is_accepted_where_the_user_says_so(lab: Laboratory, tmp_path: Path) -> None:
    known = tmp_path / "known"
    owner = Owner(lab, tmp_path, "one", known_hosts=str(known), accept_new_host_key=True)
    assert owner.cloud.examine("one")
    assert lab.hosts["one"].address in known.read_text()


def test_no_python(lab: Laboratory, tmp_path: Path) -> None:
    refused(lab, tmp_path, SetupError, "bare has no python3", "install Python 3.11 or newer", host="bare")


def test_an_old_python(lab: Laboratory, tmp_path: Path) -> None:
    refused(lab, tmp_path, SetupError, "has Python 3.8; 3.11 or newer", "install it there", python="python3.8")


def test_too_little_disk(lab: Laboratory, tmp_path: Path) -> None:
    refused(lab, tmp_path, SetupError, "small has 0.0 GB of free disk space", "disk_gb", host="small")


def test_too_little_disk_for_the_data_and_checkpoints_of_a_job(lab: Laboratory, tmp_path: Path) -> None:
    owner = Owner(lab, tmp_path, "small", disk_gb=0)
    with pytest.raises(SetupError, match="small has too little free disk space"):
        owner.launch("small", disk_gb=1)
    owner.launch("small")


def test_a_disk_that_is_full_during_the_launch(lab: Laboratory, tmp_path: Path) -> None:
    owner = Owner(lab, tmp_path, "small", disk_gb=0)
    with pytest.raises(SetupError, match="small has too little free disk space"):
        owner.launch("small", user_data="#" * 2_000_000)
    assert owner.cloud.find("token", "small") == []
    assert sleeping(lab.hosts["small"]) == 0
    owner.launch("small")


@pytest.mark.parametrize("how", ["terminated", "expired"])
def test_a_machine_that_has_filled_the_disk_can_be_ended(lab: Laboratory, tmp_path: Path, how: str) -> None:
    owner, host = Owner(lab, tmp_path, "small", disk_gb=0, slots=2), lab.hosts["small"]
    fill = "cat /dev/zero > fill; exec sleep 1001"
    machine = owner.launch("small", user_data=fill, time_to_live_s=2 if how == "expired" else None)
    until(lambda: sleeping(host) == 1 or how == "expired")
    if how == "terminated":
        owner.cloud.terminate(machine)
    until(lambda: not host.processes())
    assert owner.instance(machine).end_reason is (EndReason.USER if how == "terminated" else EndReason.EXPIRED)
    owner.cloud.terminate(owner.launch("small", token="another"))


def test_a_record_that_a_power_failure_took_does_not_keep_the_host_from_others(lab: Laboratory, tmp_path: Path) -> None:
    owner, host = Owner(lab, tmp_path, "two", slots=2), lab.hosts["two"]
    machine = owner.launch("two")
    sleeps(host, 4)
    host.run(f": > {owner.hosts[0].folder}/machines/{machine}/record.json")
    assert owner.cloud.describe([machine]) == []
    assert not host.processes()
    owner.cloud.terminate(owner.launch("two", token="another"))


def test_a_shell_that_asks_at_each_login(lab: Laboratory, tmp_path: Path) -> None:
    lab.hosts["asks"].run("echo 'read -p \"Which project? \" project' > ~/.bashrc")
    refused(
        lab, tmp_path, SetupError, "the shell of asks reads the input meant for its", "only on a terminal", host="asks"
    )


def test_a_shell_that_greets_changes_nothing(lab: Laboratory, tmp_path: Path) -> None:
    lab.hosts["greets"].run("echo 'echo WELCOME; echo HERE >&2; printf x' > ~/.bashrc")
    owner = Owner(lab, tmp_path, "greets")
    assert owner.instance(owner.launch("greets")).alive


def test_a_folder_for_temporary_files_that_is_read_only(lab: Laboratory, tmp_path: Path) -> None:
    lab.hosts["fixed"].run("mount -o remount,ro /tmp", user="root")
    refused(
        lab, tmp_path, SetupError, "fixed: /tmp is read-only", "give this user write permission there", host="fixed"
    )


def test_another_architecture(lab: Laboratory, tmp_path: Path) -> None:
    refused(lab, tmp_path, SetupError, "of architecture i686, not", "change architecture", python="python32")


def test_a_gpu_that_is_not_as_declared(lab: Laboratory, tmp_path: Path) -> None:
    found = "is declared to have 1 x H100; found: NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090"
    refused(lab, tmp_path, SetupError, found, "correct gpu and gpus", gpu="H100")
    refused(lab, tmp_path, SetupError, "nvidia-smi is not installed", "check the driver", gpu="RTX-4090", host="two")


def test_gpus_that_are_as_declared_are_shared_by_slots(lab: Laboratory, tmp_path: Path) -> None:
    owner = Owner(lab, tmp_path, "one", gpu="RTX-4090", gpus=2, slots=2)
    machines = [owner.launch(token=token, user_data="echo $CUDA_VISIBLE_DEVICES; exec sleep 1000") for token in "ab"]
    logs = [f"{owner.hosts[0].folder}/machines/{machine}/output.log" for machine in machines]
    until(lambda: lab.hosts["one"].run(f"cat {' '.join(logs)}").stdout.split() == ["0", "1"])


def test_a_host_that_is_off(lab: Laboratory, tmp_path: Path) -> None:
    hosts = read_hosts({"off": {**declared(lab, "one")["one"], "address": lab.office.address}})
    cloud = StaticProvider(hosts, tmp_path, SystemClock())
    with pytest.raises(UnavailableError, match="off cannot be reached"):
        cloud.list_owned("tw-1")
    with pytest.raises(CapacityError, match="off cannot be reached"):  # nothing was sent: the job goes elsewhere
        cloud.launch(LaunchSpec("token", cloud.offers()[0].id, ESCAPES))


def test_a_command_of_a_person_runs_in_the_folder_of_the_machine(lab: Laboratory, owner: Owner) -> None:
    machine = owner.launch()
    command = owner.cloud.shell(machine, ["bash", "-c", 'pwd; echo "$1"', "-", "a b"])
    done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    home = owner.hosts[0].folder.replace("~", f"/home/{USER}")
    assert done.stdout.split("\n")[:2] == [f"{home}/machines/{machine}/files", "a b"]


def test_a_command_of_a_person_goes_on_when_a_request_is_not_answered(lab: Laboratory, owner: Owner) -> None:
    machine = owner.launch()
    command = owner.cloud.shell(machine, ["bash", "-c", "echo here; read line; echo $line"])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stdout.readline() == "here\n"
        owner.cloud._ssh._hang_up(owner.hosts[0])
        print("there", file=shell.stdin, flush=True)
        assert shell.stdout.readline() == "there\n"
    assert shell.returncode == 0


def test_what_is_found_on_a_host_is_reported_with_the_difference_of_the_clocks(lab: Laboratory, tmp_path: Path) -> None:
    owner = Owner(lab, tmp_path, "one", gpu="RTX-4090", gpus=2, slots=2)
    owner.launch()
    found = owner.cloud.examine("one")
    assert "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090, 2 GB free, 1 of 2 slots free, its clock agrees" in found
    past = StaticProvider(owner.hosts, owner.state, VirtualClock())
    assert "s ahead" in past.examine("one")
