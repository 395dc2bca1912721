"""Keys in files that anyone can read are refused, whatever cloud they are for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from providers.errors import SetupError
from providers.key_files import refuse_open

AWS_KEYS = "[default]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n"


def aws(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], object]]:
    from providers.aws.session import Connections

    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "keys"))
    (folder / "keys").write_text(AWS_KEYS)
    return folder / "keys", lambda: Connections().client("ec2", "us-east-1")


def gcp(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], object]]:
    from providers.gcp.session import Connections

    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "keys"))
    (folder / "keys").write_text("{}")
    return folder / "keys", Connections().credentials


def azure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], object]]:
    from providers.azure.session import Connections

    monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PATH", str(folder / "keys"))
    (folder / "keys").write_text("-----BEGIN PRIVATE KEY-----")
    return folder / "keys", lambda: Connections("s").credential


@pytest.mark.parametrize("cloud", [aws, gcp, azure])
def test_keys_that_anyone_can_read_are_refused_with_the_remedy(
    cloud: Callable[..., tuple[Path, Callable[[], object]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    keys, connect = cloud(tmp_path, monkeypatch)
    keys.chmod(0o644)
    with pytest.raises(SetupError, match="every user of this machine can read it") as caught:
        connect()
    assert caught.value.hint.startswith(f"chmod 600 {keys}")
    keys.chmod(0o600)
    refuse_open(keys)


def test_a_group_may_read_keys_and_a_missing_file_is_for_others_to_complain_of(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    (tmp_path / "keys").chmod(0o440)
    for path in (tmp_path / "keys", tmp_path / "none", None, ""):
        refuse_open(path)


def test_a_settings_file_of_aws_without_keys_may_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, connect = aws(tmp_path, monkeypatch)
    keys.write_text("[default]\nregion = eu-west-1\n")
    keys.chmod(0o644)
    connect()


def test_keys_of_the_environment_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, connect = aws(tmp_path, monkeypatch)
    keys.chmod(0o644)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    connect()


def test_doctor_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from providers.aws.permissions import access

    keys, _ = aws(tmp_path, monkeypatch)
    keys.chmod(0o604)
    (found,) = access()
    assert not found.works
    assert f"chmod 600 {keys}" in found.remedy
