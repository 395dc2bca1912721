"""The first process of a simulated machine: makes its namespaces and its root folder, and runs sshd in it.

    python -m tests.machines.inside FOLDER < orders

Reads one order per line: `start` (its network is connected), `reboot BOOT_ID`, `boot` (of a machine that is rented: its
user data is in the folder). Answers each with a line. It ends when its standard input does, or when a rented machine
shuts down, and the kernel then ends every process of the machine.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.machines.namespaces import (
    NEW_MOUNTS,
    NEW_NAMES,
    NEW_NET,
    NEW_PIDS,
    PRIVATE,
    RECURSIVE,
    bind,
    mount,
    unshare,
)

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
SETTINGS = (
    *("ld.so.cache", "localtime", "mime.types", "services", "protocols", "os-release", "alternatives"),
    "ssl/certs",  # obstore starts only where there are some
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
USER_DATA = "/var/lib/user-data"
CONSOLE = "/var/console.log"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def main() -> int:
    """Split into the process outside, which waits, and the first one inside."""
    folder = Path(sys.argv[1])
    plan = json.loads((folder / "plan.json").read_text())
    unshare(NEW_NET | NEW_MOUNTS | NEW_PIDS | NEW_NAMES)
    child = os.fork()
    if child:
        print(child, flush=True)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the orders are the child's alone
        os.waitpid(child, 0)
        return 0
    if plan is not None:
        furnish(folder, plan)
    serve(plan)
    if folder.name == "hub":  # the last that knows the laboratory's folder, if its test was killed
        shutil.rmtree(folder.parent, ignore_errors=True)
    return 0


def furnish(folder: Path, plan: dict) -> None:
    """Make the machine's root folder and move into it."""
    root = folder / "root"
    root.mkdir()
    socket.sethostname(plan["name"])
    mount("none", "/", flags=PRIVATE | RECURSIVE)
    mount("tmpfs", root, "tmpfs", data="mode=755")
    for name in SYSTEM:
        at = Path("/") / name
        if at.is_symlink():
            (root / name).symlink_to(os.readlink(at))
        elif at.is_dir():
            (root / name).mkdir()
            bind(at, root / name)
    for name in ("proc", "sys", "dev", "run", "etc", "var", "tmp", "home", "root"):
        (root / name).mkdir()
    for name in DEVICES:
        (root / "dev" / name).touch()
        bind(f"/dev/{name}", root / "dev" / name, read_only=False)
    for target, size, mode in (
        ("dev/shm", plan["memory"], "1777"),
        ("tmp", plan["disk"], "1777"),
        ("home", plan["disk"], "755"),
        ("var", plan["disk"], "755"),
    ):
        (root / target).mkdir(exist_ok=True)
        mount("tmpfs", root / target, "tmpfs", data=f"mode={mode},size={size}")
    (root / "var" / "tmp").mkdir()
    (root / "var" / "tmp").chmod(0o1777)
    (root / "dev" / "fd").symlink_to("/proc/self/fd")
    (root / "dev" / "pts").mkdir()
    mount("devpts", root / "dev" / "pts", "devpts", data="newinstance,ptmxmode=0666,mode=620")
    (root / "dev" / "ptmx").symlink_to("pts/ptmx")
    mount("proc", root / "proc", "proc")
    bind("/sys", root / "sys")
    for name in ("sshd", "lock"):
        (root / "run" / name).mkdir(mode=0o755)
    show_packages(root, plan)
    settle(root, plan)
    (root / "old").mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "old"], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/old"], check=True)
    Path("/old").rmdir()


def show_packages(root: Path, plan: dict) -> None:
    """Its Python: this one, read-only, with the packages that are installed here except ours."""
    for source in map(Path, plan["python_folders"]):
        target = root / source.relative_to("/")
        if not target.exists():
            target.mkdir(parents=True)
        bind(source, target)
    packages = root / "opt" / "packages"
    packages.mkdir(parents=True)
    for number, source in enumerate(plan["packages"]):
        shown = root / "opt" / f"shown-{number}"
        shown.mkdir()
        bind(source, shown)
        for entry in sorted(os.listdir(shown)):
            link = packages / entry
            if "tradewind" not in entry.lower() and not entry.endswith(".pth") and not os.path.lexists(link):
                link.symlink_to(f"/opt/shown-{number}/{entry}")
    if plan["packages_at"]:
        bind(packages, root / plan["packages_at"].lstrip("/"))


def settle(root: Path, plan: dict) -> None:
    """Accounts, keys and programs."""
    etc = root / "etc"
    for name in (
        "ld.so.cache",
        "localtime",
        "mime.types",
        "services",
        "protocols",
        "os-release",
        "alternatives",
        "ssl/certs",
    ):
        source = Path("/etc") / name
        if source.is_dir():
            shutil.copytree(source, etc / name, symlinks=True)
        elif source.exists():
            shutil.copy(source, etc / name)
    home = f"/home/{plan['user']}"
    accounts = ("root:x:0:0:root:/root:/bin/bash", "sshd:x:102:65534::/run/sshd:/usr/sbin/nologin")
    nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin"
    user = f"{plan['user']}:x:{plan['uid']}:{plan['uid']}::{home}:/bin/bash"
    (etc / "passwd").write_text("\n".join((*accounts, nobody, user, "")))
    (etc / "shadow").write_text(f"{plan['user']}:*:19000:0:99999:7:::\n")
    (etc / "group").write_text(f"root:x:0:\nnogroup:x:65534:\n{plan['user']}:x:{plan['uid']}:\n")
    (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {plan['name']}\n")
    at_home = root / home.lstrip("/")
    at_home.mkdir(mode=0o700)
    os.chown(at_home, plan["uid"], plan["uid"])
    ssh = etc / "ssh"
    ssh.mkdir()
    for name in ("host_key", "authorized_keys", "sshd_config"):
        (ssh / name).write_text(plan[name])
        (ssh / name).chmod(0o600 if name == "host_key" else 0o644)
    programs = root / "opt" / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    if plan["python"]:
        (programs / "python3").symlink_to(plan["python"])
    for name in plan["system_programs"]:
        (programs / name).symlink_to(f"/usr/bin/{name}")
    for name, text in plan["programs"].items():
        (programs / name).unlink(missing_ok=True)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    if "user_data" in plan:
        script = root / USER_DATA.lstrip("/")
        script.parent.mkdir(parents=True)
        script.write_bytes(base64.b64decode(plan["user_data"]))
        script.chmod(0o700)
    (root / "run" / "boot_id").write_text(plan["boot_id"] + "\n")
    bind(root / "run" / "boot_id", root / BOOT_ID.lstrip("/"), read_only=False)


def serve(plan: dict | None) -> None:
    """Carry out orders, and collect the children of processes that have died."""
    signal.signal(signal.SIGCHLD, _reap)
    for order in iter(sys.stdin.readline, ""):
        word, *rest = order.split()
        if word == "reboot":
            end_all()
            Path("/run/boot_id").write_text(rest[0] + "\n")
        if word == "boot":
            run_user_data()
        elif plan is not None and plan["sshd_config"]:
            start_sshd(plan)
        print(word, flush=True)


def run_user_data() -> None:
    """Run what cloud-init runs, as it does: as root, with little in the environment. `shutdown` ends this process."""
    signal.signal(signal.SIGTERM, shut_down)
    console = os.open(CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    os.posix_spawn(
        USER_DATA,
        [USER_DATA],
        {"PATH": "/opt/programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        file_actions=[(os.POSIX_SPAWN_DUP2, source, at) for source, at in ((null, 0), (console, 1), (console, 2))],
        setsid=True,
    )
    os.close(console)
    os.close(null)


def shut_down(*_: object) -> None:
    """End this machine; what its user data printed outlives it."""
    os.write(2, Path(CONSOLE).read_bytes())
    os._exit(0)


def start_sshd(plan: dict) -> None:
    """Listening before this returns."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.set_inheritable(descriptor, descriptor == 2)
    command = [plan["sshd"], "-D", "-E", "/var/sshd.log", "-f", "/etc/ssh/sshd_config"]
    os.posix_spawn(
        command[0], command, {"PATH": os.defpath}, file_actions=[(os.POSIX_SPAWN_DUP2, null, at) for at in (0, 1, 2)]
    )
    os.close(null)
    give_up = time.monotonic() + 10
    while f":{22:04X} " not in Path("/proc/net/tcp").read_text():
        if time.monotonic() > give_up:
            raise RuntimeError("sshd does not listen: " + Path("/var/sshd.log").read_text())
        time.sleep(0.02)


def end_all() -> None:
    """Kill every other process of this machine, and wait until they are gone."""
    while [each for each in os.listdir("/proc") if each.isdigit() and each != "1"]:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        _reap()
        time.sleep(0.01)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


if __name__ == "__main__":
    sys.exit(main())
