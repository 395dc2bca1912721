"""Environments of jobs: built once by real processes, never used half, and kept while somebody uses them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.disks import mounted
from tests.wheels import wheel
from trainers.errors import SetupError
from trainers.process.environment import UNUSED_S, Builder, Environment
from trainers.process.environment_key import key_of
from trainers.process.run_context import Timers
from trainers.spec import SetupSpec

OFFLINE = "pip install --quiet --no-index --no-deps"


@pytest.fixture
def setup(tmp_path: Path) -> SetupSpec:
    """One that counts in `built` how often it ran."""
    work = tmp_path / "work"
    work.mkdir()
    return SetupSpec(str(tmp_path / "environments"), str(tmp_path / "log"), str(work), command="echo once >> built")


@contextmanager
def built(setup: SetupSpec, **secrets: str) -> Iterator[Environment]:
    """The environment of `setup`, used in this block; output goes to its log."""
    with open(setup.log, "ab", buffering=0) as log:
        environment = Builder(Path(setup.root), log.fileno(), lambda: False).environment(setup, secrets)
    try:
        yield environment
    finally:
        os.close(environment.lock)


def runs(setup: SetupSpec) -> int:
    marks = Path(setup.workdir, "built")
    return len(marks.read_text().splitlines()) if marks.exists() else 0


def test_it_has_what_was_installed_and_what_the_site_has(setup: SetupSpec) -> None:
    wheel(Path(setup.workdir), "tinydep")
    setup = replace(setup, command=f"{OFFLINE} tinydep*.whl; python -c 'import tinydep, sys; print(sys.prefix)'")
    with built(setup) as environment:
        program = "import sys, tinydep, torch, numpy, trainers.runner; print(sys.prefix)"
        asked = [environment.python, "-c", program]
        said = subprocess.run(asked, env=environment.variables(os.environ), capture_output=True, text=True, check=True)
        assert said.stdout.strip() == str(environment.folder)
        assert str(environment.folder) in Path(setup.log).read_text()
    with pytest.raises(ImportError):
        __import__("tinydep")


def test_packages_can_be_named_without_a_command(setup: SetupSpec) -> None:
    wheel(Path(setup.workdir), "tinydep", "2.0")
    (Path(setup.workdir) / "requirements.txt").write_text("--no-index\n--find-links .\ntinydep\n")
    with built(replace(setup, command=None, requirement_files=("requirements.txt",))) as environment:
        subprocess.run([environment.python, "-c", "import tinydep; assert tinydep.VERSION == '2.0'"], check=True)


def test_a_second_run_finds_it(setup: SetupSpec) -> None:
    with built(setup) as first, built(setup) as second:
        assert (first.built, second.built) == (True, False)
        assert first.folder == second.folder
    assert runs(setup) == 1


def test_the_rest_of_a_set_up_that_was_cut_off_is_never_used(setup: SetupSpec) -> None:
    with built(setup) as environment:
        (environment.folder / "complete").unlink()
        (environment.folder / "half").touch()
    with built(setup) as environment:
        assert environment.built
        assert not (environment.folder / "half").exists()
    assert runs(setup) == 2


CHILD = """
import json, sys
from pathlib import Path
from trainers.process.environment import Builder
from trainers.spec import SetupSpec
setup = SetupSpec.from_json(json.loads(sys.argv[1]))
environment = Builder(Path(setup.root), 1, lambda: False).environment(setup, {})
print("BUILT" if environment.built else "FOUND", flush=True)
sys.stdin.read()
"""


def child(setup: SetupSpec) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, json.dumps(setup.to_json())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_two_runs_at_once_build_it_once(setup: SetupSpec) -> None:
    with child(setup) as one, child(setup) as other:
        assert one.stdin
        assert other.stdin
        outputs = [process.communicate("")[0] for process in (one, other)]
    assert sorted("BUILT" in output for output in outputs) == [False, True]
    assert runs(setup) == 1


def test_one_that_is_killed_leaves_it_to_the_next_once_its_processes_are_gone(setup: SetupSpec) -> None:
    slow = replace(setup, command="echo once >> built; test $(wc -l < built) = 2 || { echo $$; exec sleep 1000; }")
    with child(slow) as first:
        assert first.stdout
        process = next(int(line) for line in first.stdout if line.strip().isdigit())
        first.kill()
        first.wait()
        (lock,) = Path(setup.root).glob("*.lock")
        with open(lock) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.kill(process, signal.SIGKILL)
        with built(slow) as environment:
            assert environment.built
    assert runs(setup) == 2


def test_a_failure_has_the_last_lines_and_a_remedy(setup: SetupSpec) -> None:
    failing = replace(setup, command="seq 100; echo no such package >&2; false; echo unreached")
    with pytest.raises(SetupError) as raised, built(failing):
        pass
    assert "99\n100\nno such package" in raised.value.message
    assert "\n80\n" not in raised.value.message
    assert "train.setup" in raised.value.hint
    in_an_event = str(raised.value).splitlines()[-1]
    assert re.search(r"`seq 100; .*` exited with status 1: no such package .*train\.setup", in_an_event)
    assert "\nunreached" not in Path(setup.log).read_text()


def test_a_full_disk_is_named_and_nothing_of_the_half_made_environment_stays(setup: SetupSpec) -> None:
    root = Path(setup.root)
    root.mkdir()
    filling = replace(setup, command=f"{setup.command}; cp filler $VIRTUAL_ENV/filler")
    (Path(setup.workdir) / "filler").write_bytes(bytes(8 << 20))
    with mounted(root, "size=4m"):
        free = shutil.disk_usage(root).free
        with pytest.raises(SetupError) as raised, built(filling):
            pass
        assert "No space left on device" in str(raised.value).splitlines()[-1]
        assert "free disk space" in raised.value.hint
        assert [path.name for path in root.iterdir()] == [f"{key_of(filling)}.lock"]
        assert free - shutil.disk_usage(root).free < 1 << 16
        (Path(setup.workdir) / "filler").write_bytes(bytes(1 << 10))
        with built(filling) as environment:
            assert environment.built
            assert (environment.folder / "filler").stat().st_size == 1 << 10
    assert runs(setup) == 2


@pytest.mark.parametrize("options", ["size=4m,ro", "size=4k,nr_inodes=3"], ids=["read-only", "without room for it"])
def test_a_folder_of_environments_that_cannot_be_written_is_named_with_a_remedy(setup: SetupSpec, options: str) -> None:
    root = Path(setup.root)
    root.mkdir()
    with mounted(root, options):
        with pytest.raises(SetupError) as raised, built(setup):
            pass
        assert [path for path in root.iterdir() if path.is_dir()] == []
    assert re.search("Read-only file system|No space left on device", str(raised.value).splitlines()[-1])
    assert "writable" in raised.value.hint or "free disk space" in raised.value.hint
    assert runs(setup) == 0


def test_a_limit_of_file_sizes_ends_a_set_up_with_its_remedy(setup: SetupSpec) -> None:
    large = replace(setup, command="ulimit -f 16; head -c 1000000 /dev/zero > $VIRTUAL_ENV/large")
    for command in (large.command, f"trap '' XFSZ; {large.command}"):  # pip ignores the signal, too
        with pytest.raises(SetupError, match=r"ulimit -f") as raised, built(replace(setup, command=command)):
            pass
        assert "File" in str(raised.value).splitlines()[-1]
    assert not [path for path in Path(setup.root).iterdir() if path.is_dir()]


def test_a_killed_command_is_named_and_what_it_half_installed_is_not_found_by_the_next_run(setup: SetupSpec) -> None:
    command = "echo once >> built; test $(wc -l < built) = 2 || { touch $VIRTUAL_ENV/half; kill -9 $$; }"
    killed = replace(setup, command=command)
    with pytest.raises(SetupError, match=r"killed by signal 9 \(.*resources\.memory"), built(killed):
        pass
    with built(killed) as environment:
        assert environment.built
        assert not (environment.folder / "half").exists()


def test_what_a_failed_set_up_made_read_only_is_removed(setup: SetupSpec) -> None:
    made = "mkdir -p $VIRTUAL_ENV/mod/cache; touch $VIRTUAL_ENV/mod/cache/x; chmod -R a-w $VIRTUAL_ENV/mod"
    with pytest.raises(SetupError, match="status 1"), built(replace(setup, command=f"{made}; false")):
        pass
    assert not [path for path in Path(setup.root).iterdir() if path.is_dir()]


def test_what_cannot_be_removed_is_never_built_upon(setup: SetupSpec) -> None:
    stuck = Path(setup.root) / key_of(setup) / "stuck"
    stuck.mkdir(parents=True)
    with mounted(stuck, "size=1m"), pytest.raises(SetupError, match=r"stuck: .*busy.*remove it"), built(setup):
        pass
    assert runs(setup) == 0
    with built(setup) as environment:
        assert environment.built
        assert not (environment.folder / "stuck").exists()


@pytest.mark.parametrize("length", [*range(480, 501, 5), 100_000])
def test_no_part_of_a_secret_is_left_where_the_last_lines_are_cut(setup: SetupSpec, length: int) -> None:
    """A line is cut to 500 bytes, which must not hide a value from the mask."""
    failing = replace(setup, command=f'printf "%0{length}d$KEY\\n" 0 >&2; false')
    with pytest.raises(SetupError) as raised, built(failing, KEY="correct-horse-battery"):
        pass
    assert "000" in raised.value.message
    assert "corr" not in raised.value.message


def test_a_set_up_that_removes_its_environment_is_refused(setup: SetupSpec) -> None:
    for command in ('rm -r "$VIRTUAL_ENV"', 'rm -r "$VIRTUAL_ENV/bin"'):
        with pytest.raises(SetupError, match="removed"), built(replace(setup, command=command)):
            pass


def test_an_environment_without_its_python_is_built_again(setup: SetupSpec) -> None:
    with built(setup) as environment:
        environment.python.unlink()
    with built(setup) as environment:
        assert environment.python.exists()
    assert runs(setup) == 2


def test_a_python_that_is_not_there_is_named(setup: SetupSpec) -> None:
    with (
        pytest.raises(SetupError, match=r"no python3\.99 .*delete train\.python"),
        built(replace(setup, python="3.99")),
    ):
        pass


def test_it_ends_with_all_its_processes_when_it_takes_too_long_or_nobody_waits_for_it(setup: SetupSpec) -> None:
    late, gone = iter([0.0]), iter([False, False])
    endless = replace(setup, command="sleep 1000 & sleep 1000", timeout_s=5.0)
    patient = Timers(monotonic=lambda: next(late, 99.0 if runs_sleep() else 0.0), sleep=lambda _: None)

    def runs_sleep() -> bool:
        return b"[set-up] sleep" in Path(setup.log).read_bytes()

    with open(setup.log, "ab", buffering=0) as log:
        with pytest.raises(SetupError, match=r"(?s)longer than 5 s.*setup_fail_after_s"):
            Builder(Path(setup.root), log.fileno(), lambda: False, patient).environment(endless, {})
        with pytest.raises(SystemExit):
            Builder(Path(setup.root), log.fileno(), lambda: next(gone, True)).environment(endless, {})
    with built(replace(endless, command="true")):  # nobody holds a lock any more
        pass


def test_what_nobody_used_for_long_is_removed_and_what_is_in_use_stays(setup: SetupSpec) -> None:
    def unused(environment: Environment) -> Path:
        then_s = (environment.folder / "complete").stat().st_mtime - UNUSED_S - 10
        os.utime(environment.folder / "complete", (then_s, then_s))
        return environment.folder

    with built(setup) as environment:
        old = unused(environment)
    with built(replace(setup, command="echo 2")) as environment:
        used = unused(environment)
        with built(replace(setup, command="echo 3")):
            assert not old.exists()
            assert used.exists()


def test_a_key_reads_a_file_of_any_size_links_in_a_cycle_and_includes_of_any_depth(setup: SetupSpec) -> None:
    work = Path(setup.workdir)
    with open(work / "large.tar", "wb") as file:
        file.truncate(64 << 20)
    (work / "cycle").symlink_to("cycle")
    for index in range(1200):
        (work / f"{index}.txt").write_text(f"-r {index + 1}.txt\n")
    wanted = replace(setup, command="tar xf large.tar && ls cycle", requirement_files=("0.txt",))
    tracemalloc.start()
    before = key_of(wanted)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    (work / "1200.txt").write_text("numpy\n")
    assert key_of(wanted) != before


def test_the_key_is_of_all_that_it_depends_on_and_of_nothing_else(setup: SetupSpec) -> None:
    work = Path(setup.workdir)
    (work / "requirements.txt").write_text("-r more.txt\nnumpy\n")
    (work / "more.txt").write_text("torch\n")
    (work / "package").mkdir()
    (work / "package" / "pyproject.toml").write_text("[project]\n")
    (work / "data.bin").write_text("1")
    wanted = replace(
        setup, command="pip install -r requirements.txt ./package[dev] $EXTRA", env={"EXTRA": "a", "B": "1"}
    )
    keys = [key_of(wanted)]
    assert key_of(replace(wanted, log="elsewhere", timeout_s=1.0, env={"EXTRA": "a", "B": "2"})) == keys[0]
    (work / "data.bin").write_text("2")
    assert key_of(wanted) == keys[0]
    for changed in (
        replace(wanted, command=f"{wanted.command} --upgrade"),
        replace(wanted, requirements=("tqdm",)),
        replace(wanted, python="3.12"),
        replace(wanted, env={"EXTRA": "b"}),
    ):
        keys.append(key_of(changed))
    for file, content in (("more.txt", "torch>=2\n"), ("package/pyproject.toml", "[project]\nname='x'\n")):
        (work / file).write_text(content)
        keys.append(key_of(wanted))
    assert len(set(keys)) == len(keys)
