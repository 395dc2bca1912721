"""Secrets are sealed to one start of one machine's agent, for one run."""

from __future__ import annotations

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing

SECRETS = {"TOKEN": "correct horse", "LÄNGE": "\u2603" * 500}


def test_only_the_holder_of_the_key_opens_what_was_sealed_for_the_run() -> None:
    key, other = sealing.new_key(), sealing.new_key()
    sealed = sealing.seal(sealing.public_half(key), "run-1", SECRETS)
    assert b"correct horse" not in sealed
    assert sealing.opened(key, sealed, "run-1") == SECRETS
    for wrong_key, wrong, run in (
        (other, sealed, "run-1"),
        (key, sealed, "run-2"),
        (key, sealed[:-1], "run-1"),
        (key, sealed[:-1] + bytes([sealed[-1] ^ 1]), "run-1"),
        (key, b"", "run-1"),
    ):
        with pytest.raises(SiteError, match="cannot be opened"):
            sealing.opened(wrong_key, wrong, run)


@pytest.mark.parametrize("key", ["", "zz", "00", "0" * 62, "ü" * 64])
def test_a_public_key_that_is_none_is_named(key: str) -> None:
    with pytest.raises(SiteError, match="public key is not valid"):
        sealing.seal(key, "run-1", SECRETS)


def test_a_machine_proves_that_it_was_booted_with_its_own_token() -> None:
    token = sealing.boot_token(b"k" * 32, "launch-1")
    assert token == sealing.boot_token(b"k" * 32, "launch-1"), "a repeated launch has the same user data"
    assert len({token, sealing.boot_token(b"k" * 32, "launch-2"), sealing.boot_token(b"j" * 32, "launch-1")}) == 3
    shown = sealing.proof(token, "boot", "key")
    assert sealing.is_proven(token, "boot", "key", shown)
    assert not sealing.is_proven(token, "boot", "another key", shown)
    assert not sealing.is_proven(token, "another boot", "key", shown)
    assert not sealing.is_proven(sealing.boot_token(b"k" * 32, "launch-2"), "boot", "key", shown)
    assert not sealing.is_proven(token, "boot", "key", "ü\udc80")


def test_sealing_twice_gives_other_bytes_and_another_digest() -> None:
    public = sealing.public_half(sealing.new_key())
    one, two = (sealing.seal(public, "run-1", SECRETS) for _ in range(2))
    assert sealing.digest(one) != sealing.digest(two)
