"""The registry finds providers through entry points, and says what to do when it can't."""

import sys
from pathlib import Path

import pytest

from providers.errors import NotFoundError, SetupError
from providers.fake import FakeProvider
from providers.registry import provider_factory, provider_names


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str, distribution: str = "tw_other"
) -> None:
    """What pip would leave behind for a package that declares one provider."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tradewind.providers]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_our_own_providers_are_found_by_name():
    assert {"fake", "local"} <= set(provider_names())
    assert provider_factory("fake") is FakeProvider


def test_an_unknown_name_gets_the_nearest_one_and_the_list():
    with pytest.raises(NotFoundError, match="'loca'") as caught:
        provider_factory("loca")
    assert "did you mean 'local'?" in caught.value.hint
    assert "fake" in caught.value.hint


def test_a_third_party_adds_a_provider_and_it_is_imported_only_on_use(tmp_path, monkeypatch):
    (tmp_path / "tw_third.py").write_text("class Third:\n    pass\n")
    install(tmp_path, monkeypatch, "third", "tw_third:Third")
    assert "third" in provider_names()
    assert "tw_third" not in sys.modules
    assert provider_factory("third").__name__ == "Third"
    monkeypatch.delitem(sys.modules, "tw_third")


def test_a_missing_library_of_a_third_party_names_the_pip_command(tmp_path, monkeypatch):
    (tmp_path / "tw_needy.py").write_text("import tw_library_that_is_absent\n")
    install(tmp_path, monkeypatch, "needy", "tw_needy:Needy")
    with pytest.raises(SetupError, match="tw_library_that_is_absent") as caught:
        provider_factory("needy")
    assert caught.value.hint == "pip install tw_library_that_is_absent"


def test_a_missing_extra_of_ours_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "tw_cloudy.py").write_text("import tw_sdk_that_is_absent.client\n")
    install(tmp_path, monkeypatch, "cloudy", "tw_cloudy:Cloudy", distribution="tradewind")
    with pytest.raises(SetupError) as caught:
        provider_factory("cloudy")
    assert caught.value.hint == "pip install 'tradewind[cloudy]'"


@pytest.mark.parametrize("target", ["tw_nowhere:Gone", "providers.fake:Gone"])
def test_a_declaration_that_leads_nowhere_says_reinstall(tmp_path, monkeypatch, target):
    install(tmp_path, monkeypatch, "ghost", target)
    with pytest.raises(SetupError, match="ghost") as caught:
        provider_factory("ghost")
    assert caught.value.hint == "reinstall tw_other"


def test_two_packages_with_one_name_are_refused(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "fake", "tw_impostor:Fake")
    with pytest.raises(SetupError, match="several packages"):
        provider_factory("fake")
