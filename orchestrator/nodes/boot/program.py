"""The program in the user data of a machine that shares nothing with the control plane.

It checks the machine, installs the runtime, and runs the agent until that ends. Only Python 3.11 and its standard
library are certain here; orchestrator.nodes.boot.user_data adds the configuration and calls `boot`. Problems of the
machine are reported on its console and, as its `node` object, to the control plane.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import importlib.metadata
import io
import json
import os
import platform
import re
import secrets
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, NoReturn

TRIES, PAUSE_S, TIMEOUT_S = 6, 2.0, 30.0
MOST_SKEW_S = 600  # S3 refuses signatures that are 15 minutes off
UNUSED_S = 30 * 86400
DONE = "complete"
STORES = ("AWS_", "AZURE_", "GOOGLE_")  # their variables are not for the job

Config = Mapping[str, Any]


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: requests may carry a token."""

    def redirect_request(self, *_: Any) -> None:
        """Go nowhere."""


class Unfit(Exception):
    """This machine cannot be used; states the problem and the remedy."""


def boot(config: Config) -> NoReturn:
    """Run the agent as the first process of its own session. Does not return."""
    if os.getsid(0) != os.getpid():
        _in_a_session_of_its_own()
    os.umask(0o077)
    urllib.request.install_opener(urllib.request.build_opener(Stay))
    try:
        _check(config)
        _run_agent(config, *_runtime(config))
    except Unfit as error:
        _report(config, str(error))
        sys.exit(1)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _report(config, f"its disk is full: {error}. Free some space, or choose a larger disk")
            sys.exit(1)
        _report(config, f"the machine could not be set up: {type(error).__name__}: {error}")
        raise


def _in_a_session_of_its_own() -> None:
    child = os.fork()
    if child == 0:
        os.setsid()
        return
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)


# Requirements of the machine


def _check(config: Config) -> None:
    if (sys.platform, platform.machine()) not in {("linux", machine) for machine in config["machines"]}:
        found = f"{sys.platform} on {platform.machine()}"
        wanted = " or ".join(config["machines"])
        raise Unfit(f"this machine is {found}, not Linux on {wanted}: choose another machine type or image")
    if config.get("gpu"):
        _check_gpus(config["gpu"], config["gpus"], _gpus())
    _check_clock(config)


def _gpus() -> list[str]:
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.splitlines() if line.strip()]


def _check_gpus(kind: str, count: int, found: Sequence[str]) -> None:
    if kind.startswith("MI"):  # AMD's: nvidia-smi does not list them
        return
    wanted = set(kind.upper().split("-"))
    fitting = [name for name in found if wanted <= set(re.split("[^A-Z0-9]+", name.upper()))]
    if len(fitting) < count:
        listed = ", ".join(found) or "none (nvidia-smi)"
        raise Unfit(
            f"declared: {count} x {kind}; found: {listed}. Correct the declaration of this machine, or "
            "install its driver"
        )


def _check_clock(config: Config) -> None:
    """Check the clock against the date of any answer of the store: the agent's requests are signed with this machine's
    time."""
    try:
        with urllib.request.urlopen(_request(config, "registered"), timeout=TIMEOUT_S) as answer:
            date = answer.headers["Date"]
    except urllib.error.HTTPError as error:
        date = error.headers["Date"]
    except (OSError, HTTPException):
        return  # the next request reports it
    try:
        skew_s = time.time() - parsedate_to_datetime(date).timestamp()  # noqa: TID251
    except (TypeError, ValueError):
        return
    if abs(skew_s) > MOST_SKEW_S:
        raise Unfit(
            f"the clock of this machine is {abs(skew_s) / 60:.0f} minutes {'fast' if skew_s > 0 else 'slow'}, so the "
            "store would refuse its requests: set it (timedatectl set-ntp true)"
        )


def _check_space(folder: Path, wanted_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < wanted_bytes:
        raise Unfit(
            f"{folder} has {free / 2**30:.1f} GiB free, but the runtime needs {wanted_bytes / 2**30:.1f} GiB: free "
            "some space, choose a larger disk, or use an image that has torch and ray"
        )


# The runtime


def _runtime(config: Config) -> tuple[Path, int]:
    """The Python of the runtime's virtual environment, which is built if it is missing, and the lock that prevents its
    deletion while this machine uses it."""
    folder = _base() / "runtime" / str(config["runtime"]["digest"])
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two starts at once: the second finds it complete
        used = _used(folder)
        fcntl.flock(used, fcntl.LOCK_SH)
        if not ((folder / DONE).exists() and python.exists()):  # the latter is a link whose target may be gone
            shutil.rmtree(folder, ignore_errors=True)
            _forget_others(folder)
            try:
                _build(config, folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)  # the partial environment may fill the disk
                raise
            os.sync()  # a power failure must not leave the mark without the files
            (folder / DONE).touch()
        os.utime(folder / DONE)
    return python, used


def _used(folder: Path) -> int:
    return os.open(folder.parent / f"{folder.name}.used", os.O_RDWR | os.O_CREAT)


def _unused(lock: int) -> bool:
    """Whether no other machine has locked a runtime."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _base() -> Path:
    return Path(os.environ.get("HOME") or Path.home(), ".cache", "tradewind")


def _forget_others(folder: Path) -> None:
    """Delete runtimes of versions that no machine has been started with for UNUSED_S and no machine runs."""
    for other in folder.parent.iterdir():
        if other.is_dir() and time.time() - other.stat().st_mtime > UNUSED_S:  # noqa: TID251
            mark = other / DONE
            if not mark.exists() or time.time() - mark.stat().st_mtime > UNUSED_S:  # noqa: TID251
                used = _used(other)
                if _unused(used):
                    shutil.rmtree(other, ignore_errors=True)
                os.close(used)


def _build(config: Config, folder: Path) -> None:
    wanted = config["runtime"]
    archive = zipfile.ZipFile(io.BytesIO(_fetched(config)))
    pins = archive.read(wanted["pins"]).decode()
    missing = [pin for pin in pins.splitlines() if not _is_installed(pin)]
    large = any(pin.startswith(("torch", "ray")) for pin in missing)
    _check_space(folder.parent, int(wanted["disk_bytes"]) + (int(wanted["large_bytes"]) if large else 0))
    try:
        import venv
    except ModuleNotFoundError as error:
        raise Unfit(f"this machine's Python lacks the module {error.name}: apt install python3-venv") from error
    venv.EnvBuilder(system_site_packages=True, with_pip=False, symlinks=True).create(folder)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    if sys.prefix != sys.base_prefix:  # an environment made from another one does not see that one's packages
        lines = [f"import site; site.addsitedir({path!r})\n" for path in _site_packages()]
        (packages / "tradewind-site.pth").write_text("".join(lines))
    python = folder / "bin" / "python"
    if missing:
        _install(python, folder, pins, missing)
    archive.extractall(packages)
    _quietly([python, "-m", "compileall", "-q", *(packages / name for name in ("orchestrator/nodes", "trainers"))])


def _fetched(config: Config) -> bytes:
    """The archive of the runtime, which has the wheel's content."""
    wanted = config["runtime"]
    data = _asked(config, "runtime")
    if (found := hashlib.sha256(data).hexdigest()) != wanted["sha256"]:
        raise Unfit(
            f"the runtime in the store differs from the ordered one: its SHA-256 is {found}, not "
            f"{wanted['sha256']}: delete {wanted['url']}, and the control plane writes it again"
        )
    return data


def _is_installed(pin: str) -> bool:
    name, _, version = pin.partition("==")
    try:
        found = importlib.metadata.version(re.split("[<>=!~;]", name)[0].strip())
    except importlib.metadata.PackageNotFoundError:
        return False
    return not version or found.partition("+")[0] == version.partition("+")[0]


def _site_packages() -> list[str]:
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages")) and path != user]


def _install(python: Path, folder: Path, pins: str, missing: Sequence[str]) -> None:
    has_pip = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    if not has_pip and _quietly([python, "-m", "ensurepip"]) != 0:
        raise Unfit(
            f"this machine lacks {', '.join(missing)}, and pip to install them: install pip (apt install python3-pip "
            "python3-venv), or use an image that has these packages"
        )
    constraints = folder / "constraints.txt"
    constraints.write_text(pins)
    options = ["--disable-pip-version-check", "--no-input", "-c", str(constraints)]
    command = [str(python), "-m", "pip", "install", *options, *missing]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    sys.stderr.write(done.stdout)
    if done.returncode != 0:
        last = " ".join(done.stdout.strip().splitlines()[-3:])[-600:]
        raise Unfit(
            f"pip could not install the runtime: {last}. Check that this machine reaches a package index, or use an "
            f"image that has {', '.join(missing)}"
        )


def _quietly(command: Sequence[str | Path]) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


# The store, without credentials


def _request(config: Config, name: str, body: bytes | None = None) -> urllib.request.Request:
    """A request for an object; with a body, a request that creates it."""
    urls = config["urls"]
    path, suffix = urls["objects"][name]
    query = "&".join(filter(None, (urls["query"], suffix)))
    url = f"{urls['endpoint']}{path}?{query}" if query else f"{urls['endpoint']}{path}"
    once = {} if body is None else {**urls["once"], "Content-Type": "application/json"}
    return urllib.request.Request(url, body, {**urls["headers"], **once}, method="GET" if body is None else "PUT")


def _asked(config: Config, name: str) -> bytes:
    """The content of an object."""
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(_request(config, name), timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            why = f"{error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                hint = "it may have been deleted, or this machine started more than an hour after it was ordered"
                raise Unfit(f"the store does not return {name}: {why} ({hint})") from error
        except (OSError, HTTPException) as error:  # the latter for a truncated answer
            why = str(error)
        if left:
            time.sleep(PAUSE_S)
    raise Unfit(
        f"the store {config['urls']['endpoint']} does not answer: {why}. Check this machine's network and proxy"
    )


def _report(config: Config, why: str, tries: int = TRIES) -> None:
    """Report on the console and to the control plane why this machine cannot be used."""
    if config["nodes"] > 1:  # which machine of the launch?
        why = f"{os.environ.get('TRADEWIND_INSTANCE_ID') or platform.node()}: {why}"
    why, start = why[:2000].encode(errors="replace").decode(), secrets.token_hex(8)
    sys.stderr.write(f"tradewind: {why}\n")
    proof = hmac.new(config["boot_token"].encode(), f"error:{start}:{why}".encode(), hashlib.sha256).hexdigest()
    body = json.dumps({"boot": start, "public_key": "", "proof": proof, "error": why}).encode()
    request = _request(config, "node", body)
    for left in reversed(range(tries)):
        try:
            urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
            return
        except urllib.error.HTTPError as error:
            sys.stderr.write(f"tradewind: the report to the control plane failed: {error.code} {error.reason}\n")
            if error.code < 500:
                return
        except (OSError, HTTPException) as error:
            sys.stderr.write(f"tradewind: the report to the control plane failed: {error}\n")
        if left:
            time.sleep(PAUSE_S)


# The agent


def _run_agent(config: Config, python: Path, used: int) -> NoReturn:
    """Run the agent; then end every process of this machine, including this one."""
    given = os.environ.get("TRADEWIND_INSTANCE_DIR")  # from a provider that starts several machines on one host
    folder = Path(given) if given else _base() / "machines" / config["token"]
    folder.mkdir(parents=True, exist_ok=True)
    temp = Path(tempfile.gettempdir(), f"tw-{hashlib.sha256(config['token'].encode()).hexdigest()[:10]}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(STORES)}
    environment |= {**config["environment"], "TRADEWIND_INSTANCE_DIR": str(folder)}
    environment["PATH"] = f"{python.parent}:{environment.get('PATH', os.defpath)}"
    for name in ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    environment["TRADEWIND_BOOT_FD"] = str(reader)
    command = [str(python), "-m", "orchestrator.nodes.agent", config["store"], config["token"], str(temp)]
    command += [str(config["nodes"])]
    agent = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, cwd=folder, pass_fds=[reader, used])
    os.close(reader)
    with open(writer, "w") as pipe:  # read from a pipe, because other processes may read the agent's environment
        json.dump({"boot_token": config["boot_token"], "urls": config["urls"]}, pipe)
    signal.signal(signal.SIGTERM, lambda *_: agent.terminate())
    agent.wait()
    if not (folder / "registered").exists():
        _report(config, _why_ended(python, agent.returncode, used), tries=1)
    os.chdir("/")
    os.execve(python, [str(python), "-m", "orchestrator.nodes.session", str(folder), str(temp)], environment)


def _why_ended(python: Path, code: int, used: int) -> str:
    """Why an agent ended before it was ready. A runtime that is damaged is built again by the next start."""
    command = [str(python), "-c", "import orchestrator.nodes.agent, ray"]
    tried = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    last = tried.stderr.strip().splitlines()[-1:] if tried.returncode != 0 else []
    if tried.returncode != 0 and _unused(used):
        (python.parent.parent / DONE).unlink(missing_ok=True)
    why = " ".join(last) or "see the machine's console output"
    return f"the agent of the machine ended before it was ready ({code}): {why}"
