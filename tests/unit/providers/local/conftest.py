"""Machines of the local provider under test: the fixture starts real ones and waits for them without sleeping."""

import os

import pytest

from providers.base import LaunchSpec
from providers.clock import VirtualClock
from providers.local import LocalProvider


class Machines:
    """One local cloud on a virtual clock. A machine says what it does through a named pipe: hearing it waits."""

    offer_id = "local/north/north-a/sim.small/on_demand"

    def __init__(self, folder):
        self.folder = folder / "local"
        self.pipes = folder
        self.clock = VirtualClock()
        self.provider = self.attach()

    def attach(self, **options):
        """One more client of the same cloud, as in another process."""
        return LocalProvider(self.folder, self.clock, 0, **({"background_preemptions": False} | options))

    def spec(self, script, *, token="t", **more):
        """A machine that runs `script`, in which `say WORD` tells the test."""
        pipe = self.pipes / f"{token}.pipe"
        if not pipe.exists():
            os.mkfifo(pipe)
        arguments = {"offer_id": self.offer_id, "tags": {"tradewind-install": "i"}} | more
        return LaunchSpec(token, user_data=f"say() {{ echo $1 > {pipe}; }}\n{script}\n", **arguments)

    def up(self, script, *, token="t", **more):
        """Launch it and wait for its `say up`; returns its id."""
        (instance_id,) = self.provider.launch(self.spec(script, token=token, **more))
        assert self.hear(token) == "up"
        return instance_id

    def hear(self, token="t"):
        """The next word of the machine."""
        return (self.pipes / f"{token}.pipe").read_text().strip()

    def home(self, instance_id):
        return self.folder / "instances" / instance_id

    def look(self, instance_id):
        """What the provider says of it now."""
        (instance,) = self.provider.describe([instance_id])
        return instance


@pytest.fixture
def machines(tmp_path):
    found = Machines(tmp_path)
    yield found
    for instance in found.attach().list_owned("i"):
        found.provider.terminate(instance.id)
    assert found.attach().processes_left() == []
