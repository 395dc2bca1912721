"""Documents that the store keeps compressed: they can always be read again, also those of older versions."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.store.packed import packed, packed_text, unpacked, unpacked_text

STORED = (b"x\xf9Ij\xe0\x04#.\x91\x1b*\xd5\x02\x00!\x98\re", '{"schema":"placement/1","job_id":"job_1"}')
STORED_TEXT = ("ePlJauAEqya2wI2tBQBSDg8t", '{"schema":"comparison-inputs/1","stays":[]}')
"""As they were stored first. Stores of users have such rows, so these tests may not be changed."""


def test_what_was_stored_once_can_be_read_for_good() -> None:
    assert unpacked(STORED[0]).decode() == STORED[1]
    assert unpacked_text(STORED_TEXT[0]) == STORED_TEXT[1].encode()


@given(st.text(st.characters(codec="utf-8")))
def test_every_document_is_read_back(document: str) -> None:
    assert unpacked(packed(document)).decode() == document
    text = unpacked_text(packed_text(document))
    assert text == document.encode()


@given(st.text(st.characters(codec="utf-8")))
def test_documents_of_older_versions_are_read(document: str) -> None:
    assert unpacked(zlib.compress(document.encode())).decode() == document
    assert unpacked_text(f"{{{document}") == f"{{{document}"


@pytest.mark.parametrize("damaged", [b"", b"\xff\x00", STORED[0][:-1], STORED[0][:9], b"x" + STORED[0]])
def test_damage_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(damaged)


@pytest.mark.parametrize("damaged", ["", "noise", "ff00", "\u00e9", STORED_TEXT[0][:-4], "[]"])
def test_damaged_text_is_an_error(damaged: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked_text(damaged)
