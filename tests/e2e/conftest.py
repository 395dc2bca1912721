"""One installation on real processes for all tests of this folder, and one run without interruption to compare with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.living import SECRET, Reference, Tradewind


@pytest.fixture(scope="session")
def tradewind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tradewind]:
    """Up, with leases of some seconds."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("E2E_SECRET", SECRET)
        tradewind = Tradewind(tmp_path_factory.mktemp("e2e"), TRADEWIND_LEASE_S="8", TRADEWIND_SUSPECT_AFTER_S="3")
        environment.setenv("E2E_UNSET", "known to whoever submits, and to no control plane")
        try:
            tradewind.command("up")
            yield tradewind
        finally:
            tradewind.close()


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    reference = Reference(tmp_path_factory.mktemp("reference"))
    yield reference
    reference.close()
