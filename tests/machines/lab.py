"""A laboratory: hosts, a bucket and an office on one network, whose cables can be cut."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from scripts.machines import find
from tests.clouds.s3 import KEY_ID, S3, SECRET
from tests.clouds.server import LoopbackServer
from tests.machines.namespaces import network_of, why_not

USER, UID = "ada", 1815
NETWORK = "10.77.0."
NOBODY = "02:00:00:00:00:01"  # an address of the link layer that no card has: what is sent to it is lost
N = TypeVar("N", bound="Node")
_SBIN = "/usr/sbin:/sbin"
_PATH = "/opt/programs:/usr/local/bin:/usr/bin:/bin"
_SSHD = """
Port 22
ListenAddress 0.0.0.0
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile none
MaxStartups 100
MaxSessions 100
LogLevel VERBOSE
SetEnv PATH={path}
"""


@dataclass(frozen=True)
class Kind:
    """What a host is like. `python` False: it has none. `programs`: name -> script, in front of all others on PATH.

    `disk` and `memory` are the sizes of its file systems as tmpfs takes them. `system_programs` None: all of this
    system; otherwise it has only these.
    """

    python: bool = True
    disk: str = "2g"
    memory: str = "1g"
    programs: Mapping[str, str] = field(default_factory=dict)
    system_programs: Sequence[str] | None = None


class Node:
    """A place in the network: namespaces held by one process."""

    def __init__(self, name: str, address: str, folder: Path, plan: Mapping[str, object] | None = None) -> None:
        self.name, self.address, self.folder = name, address, folder
        folder.mkdir()
        (folder / "plan.json").write_text(json.dumps(plan))
        with (folder / "errors").open("wb") as errors:
            self._holder = subprocess.Popen(
                [sys.executable, "-m", "tests.machines.inside", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=Path(__file__).parents[2],
                env=_environment(),
                start_new_session=True,
            )
        self.pid = int(self._answer())
        """Its first process, as seen from outside."""

    def order(self, *words: str) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.write(" ".join(words) + "\n")
        self._holder.stdin.flush()
        assert self._answer() == words[0]

    def enter(self, *command: str) -> None:
        """Run a command of this system in its network."""
        subprocess.run(
            ["nsenter", f"--net=/proc/{self.pid}/ns/net", *command], check=True, env=_environment(), capture_output=True
        )

    def end(self) -> None:
        """Every process of it, and its namespaces."""
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()

    def _answer(self) -> str:
        assert self._holder.stdout is not None
        if answer := self._holder.stdout.readline().strip():
            return answer
        self._holder.wait()
        raise AssertionError(f"{self.name} did not start:\n{(self.folder / 'errors').read_text()}")


class Host(Node):
    """A machine with sshd, which somebody owns, or one without, which is rented: its user is root."""

    uid = UID

    def run(self, script: str, *, check: bool = True, user: str = USER) -> subprocess.CompletedProcess[str]:
        """A bash script on it, as its user, in that user's home."""
        command = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--uts", "--root", "--wd=/"]
        command += ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        home = "/root" if user == "root" else f"/home/{user}"
        done = subprocess.run(
            [*command, "env", "-i", f"PATH={_PATH}", f"HOME={home}", "bash", "-c", f"cd ~ && {{ {script}\n}}"],
            env=_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{script!r} on {self.name}: {done.stdout}{done.stderr}"
        return done

    def processes(self) -> dict[int, str]:
        """Pid (as seen from outside) -> command of all living processes of its user, who is root on a rented host."""
        found = {}
        for pid in self._pids():
            try:
                if os.stat(f"/proc/{pid}").st_uid == self.uid and (line := Path(f"/proc/{pid}/cmdline").read_bytes()):
                    found[pid] = line.replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:  # gone meanwhile
                continue
        return {pid: command for pid, command in found.items() if not command.startswith("sshd:")}

    @property
    def ended(self) -> bool:
        """Whether it has shut down by itself."""
        return self._holder.poll() is not None

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every process but the first."""
        for pid in self._pids():
            self._signal(pid, number)

    def kill_all(self) -> None:
        """kill -9 to every process of its user."""
        for pid in self.processes():
            self._signal(pid, signal.SIGKILL)

    def crash(self) -> None:
        """kill -9 to everything, sshd too. `reboot` brings it back."""
        self.signal_all(signal.SIGKILL)

    def pause(self) -> None:
        """Stop everything, sshd too."""
        self.signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal_all(signal.SIGCONT)

    def reboot(self) -> None:
        """Kill everything, as a power cut does, and boot again; its files stay, except those in /tmp and /run."""
        self.order("reboot", str(uuid.uuid4()))

    def _pids(self) -> list[int]:
        if self.ended:  # its number may be another process's by now
            return []
        try:
            ours = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        except OSError:  # it ends just now
            return []
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                if pid != self.pid and os.stat(f"/proc/{pid}/ns/pid").st_ino == ours:
                    found.append(pid)
            except OSError:
                continue
        return found

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


class Laboratory:
    """`hosts` by name; `office` is where the control plane is, `store` where the bucket is.

    `key` is the private key that all hosts accept, `known_hosts` has their host keys, `bucket` is an s3:// URL and
    `environment` the variables of its clients.
    """

    def __init__(self, folder: Path, stack: ExitStack, hosts: Mapping[str, Kind], s3: S3) -> None:
        self.folder = folder
        self.key = _key(folder / "key", "a key of this test")
        self._changing = threading.Lock()
        self._stack, self._nodes, self._hosts = stack, [], itertools.count(11)
        self._hub = self._add(Node("hub", "", folder / "hub"))
        self._hub.enter("ip", "link", "add", "hub", "type", "bridge", "forward_delay", "0")
        self._hub.enter("ip", "link", "set", "hub", "up")
        self.office = self._join(Node("office", f"{NETWORK}1", folder / "office"))
        self.store = self._join(Node("store", f"{NETWORK}2", folder / "store"))
        self.hosts: dict[str, Host] = {}
        self.known_hosts = folder / "known_hosts"
        for name, kind in hosts.items():
            host = self.hosts[name] = self._host(name, kind)
            with self.known_hosts.open("a") as known:
                known.write(f"{host.address} {_public(folder / f'{name}-key')}\n")
        self.s3 = s3
        with network_of(self.store.pid):
            self.server = LoopbackServer(self.s3, address=self.store.address)
        self.server.start()
        stack.callback(self.server.stop)
        self.bucket = f"s3://{self.s3.bucket}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.server.url,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": getattr(s3, "secret", SECRET),
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def rent(self, name: str, kind: Kind, user_data: bytes) -> Host:
        """Another host: it has no sshd, and runs this script as root at the order `boot`."""
        host = self._host(name, kind, user_data)
        host.uid = 0
        return host

    def give_back(self, host: Host) -> None:
        """End every process of a rented host."""
        with self._changing:
            if host in self._nodes:
                self._nodes.remove(host)
        host.end()

    @contextmanager
    def in_office(self) -> Iterator[None]:
        """This thread and the processes and threads that it starts are in the office's network."""
        with network_of(self.office.pid):
            yield

    def cut(self, sender: Node, receiver: Node) -> None:
        """From now on, nothing that `sender` sends to `receiver` arrives. The other direction is as it was."""
        sender.enter("ip", "neigh", "replace", receiver.address, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def mend(self, sender: Node, receiver: Node) -> None:
        """Undo `cut`."""
        sender.enter("ip", "neigh", "del", receiver.address, "dev", "eth0")

    def isolate(self, node: Node) -> None:
        """Cut a node off from all others, in both directions."""
        for other in self._others(node):
            self.cut(node, other)
            self.cut(other, node)

    def rejoin(self, node: Node) -> None:
        """Undo `isolate`."""
        for other in self._others(node):
            self.mend(node, other)
            self.mend(other, node)

    def _host(self, name: str, kind: Kind, user_data: bytes | None = None) -> Host:
        address = f"{NETWORK}{next(self._hosts)}"
        plan = self._plan(name, address, kind)
        if user_data is None:
            key = _key(self.folder / f"{name}-key", f"host key of {name}")
            plan |= {"sshd_config": _SSHD.format(path=plan["path"]), "host_key": key.read_text()}
        else:
            plan["user_data"] = base64.b64encode(user_data).decode()
        return self._join(Host(name, address, self.folder / name, plan))

    def _others(self, node: Node) -> list[Node]:
        return [each for each in self._nodes if each not in (node, self._hub)]

    def _add(self, node: Node) -> Node:
        with self._changing:
            self._stack.callback(node.end)
            self._nodes.append(node)
        return node

    def _join(self, node: N) -> N:
        self._add(node)
        cable = f"cable{node.pid}"
        self._hub.enter(
            "ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(node.pid)
        )  # fmt: skip
        self._hub.enter("ip", "link", "set", cable, "master", "hub", "up")
        node.enter("ip", "address", "add", f"{node.address}/24", "dev", "eth0")
        node.enter("ip", "link", "set", "eth0", "up")
        node.enter("ip", "link", "set", "lo", "up")
        node.order("start")
        return node

    def _plan(self, name: str, address: str, kind: Kind) -> dict[str, object]:
        base, packages = Path(sys.base_prefix).resolve(), _packages()
        return {
            "name": name,
            "address": address,
            "user": USER,
            "uid": UID,
            "disk": kind.disk,
            "memory": kind.memory,
            "python": os.path.realpath(sys.executable) if kind.python else "",
            "python_folders": [] if base.is_relative_to("/usr") else [str(base)],
            "packages": packages if kind.python else [],
            "packages_at": sysconfig.get_path("purelib", vars={"base": str(base)}) if kind.python else "",
            "host_key": "",
            "authorized_keys": _public(self.folder / "key") + "\n",
            "sshd_config": "",
            "path": _PATH if kind.system_programs is None else "/opt/programs",
            "sshd": str(find()),
            "system_programs": list(kind.system_programs or ()),
            "programs": dict(kind.programs),
            "boot_id": str(uuid.uuid4()),
        }


@contextmanager
def laboratory(hosts: Mapping[str, Kind] | Sequence[str], s3: S3 | None = None) -> Iterator[Laboratory]:
    """`s3` is the cloud of the bucket. Fails the test with the reason where there can be no namespaces."""
    if reason := why_not():
        pytest.fail(f"simulated machines: {reason}")
    kinds = hosts if isinstance(hosts, Mapping) else {name: Kind() for name in hosts}
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="tw-lab-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Laboratory(folder, stack, kinds, S3() if s3 is None else s3)


def _packages() -> list[str]:
    """The folders of installed packages of this Python."""
    return [each for each in sys.path if Path(each).name in ("site-packages", "dist-packages") and Path(each).is_dir()]


def _key(path: Path, comment: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def _public(path: Path) -> str:
    return path.with_suffix(".pub").read_text().strip()


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_SBIN}"}
