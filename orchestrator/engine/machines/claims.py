"""Claims: of all stores with one installation's id, only one acts on its machines.

Whoever copies a store copies the installation's id with it. So a control plane keeps a word beside each provider's
machines and in its store, and replaces it by a new one again and again. A store that does not know the word which it
finds there is a copy of one that has acted since, and its control plane refuses to act; so does the one that it was
copied from, should the copy be started before the word has changed. The new word is in the store before it is at the
provider, so that a death in between changes nothing.
"""

from __future__ import annotations

from functools import partial

from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.errors import SupersededError
from orchestrator.installation import Installation
from orchestrator.model.ids import RandomBits
from orchestrator.store import Claim, Leadership
from providers.base import KeepsClaims, Provider
from providers.errors import ProviderError

CLAIM_EVERY_S = 30.0
"""Wall seconds between two new words: a copy that is older than that is found out by itself."""

MOST_WORDS = 16
"""Kept in the store: a word that a control plane was about to write when it was deposed may come late."""
RETRY_S = 1.0
PATIENCE_S = 60.0
"""Wall seconds for which a provider that does not answer keeps a new control plane from acting at all."""


def quiesce(ctx: Context) -> bool:
    """Whether this control plane may act: no other store does. Raises SupersededError."""
    may_act = True
    for provider in ctx.installation.providers.values():
        held = f"claimed:{provider.name}"
        if ctx.due(f"claim:{provider.name}", CLAIM_EVERY_S if held in ctx.pacing else RETRY_S) and contained(
            ctx, Compartment.CLAIM, partial(_claim, ctx, provider), False, about=provider.name
        ):
            ctx.pacing[held] = ctx.installation.clock.monotonic_s()
        # one that cannot be asked for the claim cannot be asked to end machines either
        may_act &= held in ctx.pacing or ctx.waited_s(f"unclaimed:{provider.name}") > PATIENCE_S
    return may_act


def _claim(ctx: Context, provider: Provider) -> bool:
    try:
        return take(ctx.installation, ctx.leadership, provider, ctx.random)
    except ProviderError:
        return False


def take(installation: Installation, leadership: Leadership | None, provider: Provider, random: RandomBits) -> bool:
    """Put a new word beside the provider's machines. False if somebody was faster: who it was is seen next time.

    Raises SupersededError, ProviderError, NotLeaderError.
    """
    if not isinstance(provider, KeepsClaims):
        return True
    found = provider.claim(installation.store.install_id)
    with installation.store.write(leadership) as tx:
        known, adoption = tx.claim(provider.name), tx.adoption()
        _check(installation, provider, found, known, adoption)
        new = f"{random.getrandbits(64):016x}"
        older = [word for word in known.words if word != found][2 - MOST_WORDS :]
        words = (*older, *([] if found is None else [found]), new)
        tx.set_claim(provider.name, Claim(words, known.adoption))
    if not provider.replace_claim(installation.store.install_id, found, new):
        return False
    if adoption != known.adoption:
        with installation.store.write(leadership) as tx:
            tx.set_claim(provider.name, Claim(words, adoption))
    return True


def check(installation: Installation) -> None:
    """Raises SupersededError when another store has acted at a provider since this one did. One that does not answer
    is not asked again: without it, nothing can be done there anyway."""
    for provider in installation.providers.values():
        if isinstance(provider, KeepsClaims):
            try:
                found = provider.claim(installation.store.install_id)
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
            f"{provider.name}, or has acted since this one did: this is a copy of it, or it is a copy of this one",
            hint="use the other store; or, if this one is to replace it, end its control plane and: "
            "tradewind store adopt",
        )
