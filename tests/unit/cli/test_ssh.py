"""`tradewind ssh`: refused where a provider offers no login; otherwise the exit code is the command's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

from orchestrator.client.namespaces.nodes import Nodes


def test_a_provider_without_login_is_named(tradewind: Callable[..., Result]) -> None:
    result = tradewind("ssh", "conv")
    assert result.exit_code == 2
    assert "does not allow logins" in result.stderr


def test_the_exit_code_is_that_of_the_command(
    tradewind: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def shell(self: Nodes, job: str, command: tuple[str, ...], node: int) -> tuple[str, ...]:
        asked.append((job, node, *command))
        return "sh", "-c", "exit 5"

    monkeypatch.setattr(Nodes, "shell", shell)
    assert tradewind("ssh", "conv", "--", "ls", "-l").exit_code == 5
    assert tradewind("ssh", "--node", "1", "conv").exit_code == 5
    assert asked == [("conv", 0, "ls", "-l"), ("conv", 1)]


def test_a_command_that_a_signal_ended_is_reported_as_shells_do(
    tradewind: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nodes, "shell", lambda *_, node: ("sh", "-c", "kill -9 $$"))
    assert tradewind("ssh", "conv").exit_code == 128 + 9
