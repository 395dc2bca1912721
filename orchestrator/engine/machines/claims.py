"""Claims: ensure that only one store with an installation's id acts on its machines.

A copy of a store has the same installation id. So the control plane keeps a claim, a random word, both next to each
provider's machines and in its store, and replaces it regularly. A store that does not know the provider's word is an
outdated copy, and its control plane refuses to act. The original also refuses if the copy was started before the word
changed. A new word is stored before it is sent to the provider, so a crash in between does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, runtime_checkable

from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.engine.direct_calls import Ask, at_once
from orchestrator.errors import SupersededError
from orchestrator.installation import Installation
from orchestrator.model.ids import RandomBits
from orchestrator.store import Claim, Leadership
from providers.base import KeepsClaims, Provider
from providers.errors import ProviderError

CLAIM_EVERY_S = 30.0
"""Wall seconds between two new words. A copy older than that is detected."""

MOST_WORDS = 16
"""Words kept in the store: a control plane that lost leadership may still write its last word late."""
RETRY_S = 1.0
PATIENCE_S = 60.0
"""Wall seconds for which an unresponsive provider keeps a new control plane from acting at all."""


@runtime_checkable
class _Claimed(Provider, KeepsClaims, Protocol):
    """A provider that keeps claims."""


def may_act(ctx: Context) -> bool:
    """Whether this control plane may act. Raises SupersededError if another store acts."""
    allowed = True
    for provider in ctx.installation.providers.values():
        held = f"claimed:{provider.name}"
        claim = partial(_claim, ctx, provider, CLAIM_EVERY_S if held in ctx.pacing else RETRY_S)
        if contained(ctx, Compartment.CLAIM, claim, False, about=provider.name):
            ctx.pacing[held] = ctx.installation.clock.monotonic_s()
        # a provider that cannot be asked for its claim cannot end machines either
        allowed &= held in ctx.pacing or ctx.waited_s(f"unclaimed:{provider.name}") > PATIENCE_S
    return allowed


def _claim(ctx: Context, provider: Provider, every_s: float) -> bool:
    """The next step of `renew`. Returns whether a new claim was written."""
    if not isinstance(provider, _Claimed):
        return True
    install, place, replaces = ctx.installation.store.install_id, (provider.name, ""), f"replace-claim:{provider.name}"
    try:
        replaced = ctx.answer(replaces)
        if replaced is None:
            found = ctx.ask(f"claim:{provider.name}", place, partial(provider.claim, install), every_s=every_s)
            if found is None:
                return False
            replaced = ctx.begin(
                replaces, place, _replacement(ctx.installation, ctx.leadership, provider, found.result(), ctx.random)
            )
        if replaced is None:
            return False
        return _replaced(ctx.installation, ctx.leadership, provider, replaced.result())
    except ProviderError:
        return False


def renew(installation: Installation, leadership: Leadership | None, provider: Provider, random: RandomBits) -> bool:
    """Write a new claim to the provider. False if another process was faster; the next call finds out which one.

    Raises SupersededError, ProviderError, NotLeaderError.
    """
    if not isinstance(provider, _Claimed):
        return True
    found = provider.claim(installation.store.install_id)
    return _replaced(
        installation, leadership, provider, _replacement(installation, leadership, provider, found, random)()
    )


def _replacement(
    installation: Installation,
    leadership: Leadership | None,
    provider: _Claimed,
    found: str | None,
    random: RandomBits,
) -> Callable[[], tuple[bool, str | None]]:
    """The call that replaces the word found at the provider with a new one, which is stored first. It returns whether
    that worked, and the permission that was used. Raises SupersededError."""
    with installation.store.write(leadership) as tx:
        known, adoption = tx.claim(provider.name), tx.adoption()
        _check(installation, provider, found, known, adoption)
        new = f"{random.getrandbits(64):016x}"
        older = [word for word in known.words if word != found][2 - MOST_WORDS :]
        words = (*older, *([] if found is None else [found]), new)
        tx.set_claim(provider.name, Claim(words, known.adoption))
    return lambda: (provider.replace_claim(installation.store.install_id, found, new), adoption)


def _replaced(
    installation: Installation, leadership: Leadership | None, provider: Provider, done: tuple[bool, str | None]
) -> bool:
    """Store that the permission was used. Returns whether the word was replaced."""
    worked, adoption = done
    with installation.store.read() as tx:
        known = tx.claim(provider.name)
    if worked and adoption != known.adoption:
        with installation.store.write(leadership) as tx:
            tx.set_claim(provider.name, Claim(known.words, adoption))
    return worked


def check(installation: Installation, ask: Ask = at_once) -> None:
    """Raises SupersededError if another store has acted at a provider since this one did. An unresponsive provider is
    skipped: no machine there can be changed anyway."""
    for provider in installation.providers.values():
        if isinstance(provider, _Claimed):
            try:
                found = ask(provider.name, partial(provider.claim, installation.store.install_id))
            except ProviderError:
                continue
            with installation.store.read() as tx:
                _check(installation, provider, found, tx.claim(provider.name), tx.adoption())


def _check(
    installation: Installation, provider: Provider, found: str | None, known: Claim, adoption: str | None
) -> None:
    if found is not None and found not in known.words and adoption == known.adoption:
        raise SupersededError(
            f"another store with this installation's id ({installation.store.install_id}) acts on its machines at "
            f"{provider.name}, or has acted since this one did: one of the two is a copy",
            hint="use the other store; to replace it with this one, stop its control plane and run: "
            "tradewind store adopt",
        )
