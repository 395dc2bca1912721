"""Logging in to a job's machine: only where its provider allows that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestrator.errors import NotFoundError, ProviderFailure, UsageError
from orchestrator.installation import Installation
from orchestrator.nodes.channel import Channel, control_store, places
from orchestrator.nodes.messages import NodeFacts
from orchestrator.services.nodes.shell import shell_command
from providers.errors import AuthError
from providers.fake import FakeProvider
from tests.unit.services.recorded_history import Past


class Open(FakeProvider):
    """A provider whose machines may be logged in to."""

    def shell(self, instance_id: str, command: Sequence[str]) -> Sequence[str]:
        if command == ["refused"]:
            raise AuthError("the key is refused", hint="install it")
        return "login", instance_id, *command


@pytest.fixture
def opened(installation: Installation) -> Installation:
    (provider,) = installation.providers.values()
    assert isinstance(provider, FakeProvider)
    return replace(installation, providers={"fake": Open(installation.clock, cloud=provider.cloud)})


def test_the_machine_that_trains_is_logged_in_to(opened: Installation, past: Past) -> None:
    with opened.store.read() as tx:
        run = tx.run(past.runs[3])
        name = tx.job(run.job_id).name
    assert shell_command(opened, name, ["ls", "-l"]) == ("login", run.instance_id, "ls", "-l")


def test_each_of_several_machines_is_logged_in_to_by_the_number_that_it_gave_itself(
    opened: Installation, past: Past
) -> None:
    with opened.store.write() as tx:
        run = tx.run(past.runs[3])
        name = tx.job(run.job_id).name
        (token,) = (each.token for each in tx.migrations(job_id=run.job_id) if each.target_run_id == run.id)
        tx.set_machines(run.id, [replace(run.machines[0], instance_id=each) for each in ("one", "zero")])
    store = control_store(opened.control_root)
    first, second = (Channel(store, place) for place in places(token, 2))
    first.put_facts(NodeFacts("boot", "key", "proof", instance="zero"))
    with pytest.raises(
        NotFoundError, match="the machines of conv are starting, so it is not known yet which one is number 1"
    ):
        shell_command(opened, name, node=1)
    second.put_facts(NodeFacts("boot", "key", "proof", instance="one"))
    assert [shell_command(opened, name, node=number)[1] for number in (0, 1)] == ["zero", "one"]
    with pytest.raises(UsageError, match="no machine 2: it has 2 machines, 0 to 1") as raised:
        shell_command(opened, name, node=2)
    assert raised.value.hint == f"tradewind nodes {name}"


def test_a_provider_that_allows_no_login_is_named(installation: Installation, past: Past) -> None:
    with pytest.raises(UsageError, match="on a machine of fake, which does not allow logins") as raised:
        shell_command(installation, "conv")
    assert raised.value.hint == "see what it prints: tradewind logs -f conv"


def test_a_job_without_a_machine_is_named(opened: Installation, past: Past) -> None:
    with pytest.raises(NotFoundError, match="gpt has no machine now"):
        shell_command(opened, "gpt")


def test_a_refusal_is_an_error_with_its_remedy(opened: Installation, past: Past) -> None:
    with pytest.raises(ProviderFailure, match="the key is refused") as raised:
        shell_command(opened, "conv", ["refused"])
    assert raised.value.hint == "install it"
