"""metadata.json: what a machine can read about itself, and what its reader returns if the file is gone or damaged."""

import pytest

from providers.errors import NotFoundError, SetupError
from providers.local.metadata import read_notice, write_notice
from providers.notice import Notice


def test_a_notice_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "metadata.json"
    write_notice(path, None)
    assert read_notice(path) is None
    write_notice(path, Notice("preemption", 12.5))
    assert read_notice(path) == Notice("preemption", 12.5)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"notice": 3}', b'{"notice": {"kind": "preemption"}}', b"\xff\xfe"]
)
def test_a_damaged_file_is_an_error_with_a_remedy(tmp_path, content):
    path = tmp_path / "metadata.json"
    path.write_bytes(content)
    with pytest.raises(SetupError, match="damaged") as caught:
        read_notice(path)
    assert "terminate the instance" in caught.value.hint


def test_a_missing_file_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(NotFoundError, match="no metadata") as caught:
        read_notice(tmp_path / "metadata.json")
    assert caught.value.hint


def test_a_damaged_file_is_replaced_by_the_next_notice(tmp_path):
    path = tmp_path / "metadata.json"
    path.write_bytes(b"\xff{")
    write_notice(path, Notice("preemption", 1.0))
    assert read_notice(path) == Notice("preemption", 1.0)
