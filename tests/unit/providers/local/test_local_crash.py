"""kill -9 of real processes that hold a LocalProvider: no machine is lost, none is doubled, none is left."""

import signal
import subprocess
import sys

import pytest

from providers.instance import EndReason, InstanceState

CLIENT = """
import os, signal, sys
from pathlib import Path
from providers.base import LaunchSpec
from providers.clock import VirtualClock
from providers.local import LocalProvider

moment, folder, offer_id, user_data = sys.argv[1:]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)

class Client(LocalProvider):
    def _boot(self, record):
        if moment == "before the start":
            die()
        super()._boot(record)
        if moment == "after the start":
            die()

    def _kill(self, record):
        if moment == "before the kill":
            die()
        super()._kill(record)

client = Client(Path(folder), VirtualClock(), 0, background_preemptions=False)
print("ready", flush=True)
sys.stdin.readline()
ids = client.launch(LaunchSpec("t", offer_id, user_data, {"tradewind-install": "i"}))
if moment == "before the kill":
    client.terminate(ids[0])
print(*ids, flush=True)
"""
SCRIPT = 'echo $$ >> "$TRADEWIND_INSTANCE_DIR/starts"; say up; exec sleep 1000'


def client(machines, moment):
    spec = machines.spec(SCRIPT)
    arguments = [moment, str(machines.folder), spec.offer_id, spec.user_data]
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def go(process):
    with process:
        return process.communicate("\n")[0].strip(), process.returncode


def starts(machines, instance_id):
    return len((machines.home(instance_id) / "starts").read_text().split())


@pytest.mark.parametrize("moment", ["before the start", "after the start"])
def test_a_launch_whose_caller_was_killed_is_finished_by_a_repeated_launch(machines, moment):
    assert go(client(machines, moment)) == ("", -signal.SIGKILL)
    (instance_id,) = machines.provider.launch(machines.spec(SCRIPT))
    assert machines.hear() == "up"
    assert machines.look(instance_id).state is InstanceState.RUNNING
    assert starts(machines, instance_id) == 1
    assert [found.id for found in machines.provider.list_owned("i")] == [instance_id]


@pytest.mark.parametrize("moment", ["before the start", "after the start"])
def test_a_launch_whose_caller_was_killed_is_finished_by_the_next_look(machines, moment):
    go(client(machines, moment))
    (found,) = machines.provider.list_owned("i")
    assert machines.hear() == "up"
    assert machines.look(found.id).state is InstanceState.RUNNING
    assert starts(machines, found.id) == 1


def test_an_unfinished_launch_can_be_ended_before_it_ever_started(machines):
    go(client(machines, "before the start"))
    (record,) = machines.provider._books.living()
    machines.provider.terminate(record.id)
    assert machines.look(record.id).end_reason is EndReason.USER
    machines.provider.launch(machines.spec(SCRIPT))
    assert not (machines.home(record.id) / "starts").exists()


def test_a_terminate_whose_caller_was_killed_is_finished_by_the_next_look(machines):
    assert go(client(machines, "before the kill")) == ("", -signal.SIGKILL)
    (record,) = machines.provider._books.living()
    assert machines.look(record.id).end_reason is EndReason.USER
    assert machines.provider.processes_left() == []


def test_a_machine_outlives_its_launcher(machines):
    instance_id, code = go(client(machines, "never"))
    assert code == 0
    assert machines.hear() == "up"
    assert machines.look(instance_id).state is InstanceState.RUNNING


def test_processes_that_launch_at_once_with_one_token_share_one_machine(machines):
    clients = [client(machines, "never") for _ in range(3)]
    for each in clients:
        each.stdin.write("\n")
        each.stdin.flush()
    ids = {go(each)[0] for each in clients}
    assert len(ids) == 1
    assert machines.hear() == "up"
    assert starts(machines, ids.pop()) == 1
