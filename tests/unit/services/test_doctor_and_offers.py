"""What the doctor finds and how to remedy it; offers, cheapest first; extras that are missing."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import (
    UsageError,
)
from orchestrator.formats.documents import to_json
from orchestrator.installation import Installation
from orchestrator.services.doctor import examine, this_machine
from orchestrator.services.doctor import state as doctor_state
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.views import OfferRow
from providers.fake import FakeProvider
from tests.unit.services.recorded_history import Past, submit_job


def test_offers_are_listed_cheapest_first_with_their_ages(installation: Installation) -> None:
    def listed_for(**wanted: object) -> tuple[OfferRow, ...]:
        return listing.offers(installation.config, lambda: installation, OfferQuery.of(**wanted), now_ms=0).offers

    listed = listed_for(cloud=["fake"])
    prices = [offer.nano_usd_per_hour or 0 for offer in listed]
    assert prices == sorted(prices)
    assert len(listed) == 24
    assert {offer.age_s for offer in listed} == {0.0}
    assert {offer.gpu for offer in listed_for(gpu="nvidia-h100", spot=True)} == {"H100"}
    with pytest.raises(UsageError, match="H900"):
        listed_for(gpu="H900")


def test_the_doctor_has_a_remedy_for_what_does_not_hold(installation: Installation) -> None:
    diagnosis = examine(installation.config)
    names = [check.name for check in diagnosis.checks]
    assert {"python", "torch", "ray", "imports", "state folder", "disk", "store", "clock"} <= set(names)
    assert not diagnosis.failed
    assert all(check.fix for check in diagnosis.checks if check.state == "fail")
    assert to_json(diagnosis)["schema"] == "tradewind/doctor/v1"


def test_the_doctor_names_variables_that_are_no_settings() -> None:
    mine = {
        "TRADEWIND_LEASE_S": "30",
        "TRADEWIND_OUTPUT_DIR": "/x",
        "TRADEWIND_PROVIDERS_LAMBDA_KEY": "k",
        "HOME": "/h",
    }
    assert this_machine.variables(mine).state == "ok"
    check = this_machine.variables({**mine, "TRADEWIND_FOO": "1"})
    assert (check.state, check.found) == ("warn", "TRADEWIND_FOO: is not a setting")
    assert check.fix == "list the settings: tradewind config show"
    check = this_machine.variables(
        {**mine, "TRADEWIND_FOO": "1", "TRADEWIND_LEASE": "30", "TRADEWIND_STORE_ROOTS_": ""}
    )
    assert check.found == "TRADEWIND_FOO, TRADEWIND_LEASE: are not settings"
    check = this_machine.variables({"TRADEWIND_STATE_FOLDER": "/x"})
    assert check.fix == 'did you mean "TRADEWIND_STATE_DIR"? or list the settings: tradewind config show'


def test_the_doctor_warns_of_no_variable_that_the_documents_or_the_program_name() -> None:
    root = Path(this_machine.__file__).parents[3]
    files = [root / "README.md", *(root / "docs").glob("*.md")]
    files += [each for name in ("orchestrator", "providers", "trainers") for each in (root / name).rglob("*.py")]
    named = {name for file in files for name in re.findall(r"\bTRADEWIND_[A-Z][A-Z_]*[A-Z]\b", file.read_text())}
    assert len(named) > 50
    assert this_machine.variables(dict.fromkeys(named, "1")).state == "ok"


def test_the_doctor_knows_every_extra(installation: Installation) -> None:
    declared = tomllib.loads((Path(this_machine.__file__).parents[3] / "pyproject.toml").read_text())
    packages = declared["project"]["optional-dependencies"]
    assert this_machine.EXTRA_MODULES.keys() == packages.keys() - {"all", "dev"}
    own = {
        extra: [each for each in packages[extra] if not each.startswith("tradewind[")]
        for extra in this_machine.EXTRA_MODULES
    }
    assert {extra: len(modules) for extra, modules in this_machine.EXTRA_MODULES.items()} == {
        extra: len(needed) for extra, needed in own.items()
    }
    found = this_machine.extras(installation.config)
    assert found.state == "ok"
    assert "web" in found.found.split(", ")


def test_an_extra_counts_only_with_all_its_packages_and_the_dashboard_needs_its_own(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(this_machine.EXTRA_MODULES, "web", ("fastapi", "no_such_module"))
    config = replace(installation.config, web=replace(installation.config.web, port=8080))
    found = this_machine.extras(config)
    assert (found.state, found.fix) == ("warn", "pip install 'tradewind[web]'")
    assert "web.port" in found.found
    assert "web" not in this_machine.extras(replace(config, web=replace(config.web, port=None))).found.split(", ")


def test_the_doctor_sees_a_failing_provider_and_jobs_that_wait_for_a_control_plane(
    installation: Installation, past: Past
) -> None:
    provider = installation.providers["fake"]
    assert isinstance(provider, FakeProvider)
    submit_job(installation, "other")
    assert doctor_state.control_plane(installation).state == "warn"
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.record_poll("fake", now, now, 0, 0, "the cloud said no")
    check = doctor_state.prices(installation, "fake")
    assert check.state == "warn"
    assert "the cloud said no" in check.found
    assert check.fix


def test_the_doctor_sees_a_state_folder_that_cannot_be_made(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = replace(installation.config, state_dir=tmp_path / "file" / "state")
    check = this_machine.state_folder(config)
    assert check.state == "fail"
    assert check.fix


def test_a_missing_extra_names_its_pip_command() -> None:
    check = this_machine.package("no-such-distribution", "train")
    assert (check.state, check.fix) == ("warn", "pip install 'tradewind[train]'")
