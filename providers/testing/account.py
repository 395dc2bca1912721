"""The account: claims, networks, quotas and errors."""

from __future__ import annotations

from dataclasses import replace

from providers.base import KeepsClaims, NeedsNetworks
from providers.errors import ConflictError, ProviderError, SetupError, UnavailableError
from providers.instance import InstanceState
from providers.testing.kit import Kit, ignore, raises


class Account(Kit):
    """Tests of `quotas` and `classify`, and of the optional claims and networks."""

    def test_a_claim_is_replaced_only_by_who_knows_it(self) -> None:
        """`replace_claim` succeeds only if the current claim is the expected one."""
        provider = self.connect()
        if not isinstance(provider, KeepsClaims):
            return
        assert provider.claim(self.install) is None
        assert not provider.replace_claim(self.install, "made up", "one")
        assert provider.replace_claim(self.install, None, "one")
        again = self.connect()
        assert isinstance(again, KeepsClaims)
        assert again.claim(self.install) == "one"
        assert not again.replace_claim(self.install, None, "two")
        assert again.replace_claim(self.install, "one", "two")
        assert not provider.replace_claim(self.install, "one", "three")
        assert provider.claim(self.install) == "two"
        assert provider.claim(f"{self.install}-other") is None

    def test_networks_are_made_once_and_removed_to_the_last_part(self) -> None:
        """`set_up` and `tear_down` may be repeated, from any client; nothing is left."""
        provider, install = self.connect(), f"{self.install}-networks"
        if not isinstance(provider, NeedsNetworks):
            return
        assert not any(network.parts for network in provider.networks(install))
        self.patiently(lambda: provider.set_up(install, ignore))
        self.advance(provider.listing_lag_s)
        again = self.connect()
        assert isinstance(again, NeedsNetworks)
        made = again.networks(install)
        assert made
        assert all(network.ready and network.parts for network in made)
        self.patiently(lambda: again.set_up(install, ignore))
        assert list(again.networks(install)) == list(made)
        for _ in range(2):
            self.patiently(lambda: again.tear_down(install, ignore))
        self.advance(provider.listing_lag_s)
        assert not any(network.parts for network in again.networks(install))

    def test_nothing_is_launched_without_a_network(self) -> None:
        """`launch` raises SetupError for an installation without networks, and does not use up the token."""
        provider = self.connect()
        if not isinstance(provider, NeedsNetworks):
            return
        other = f"{self.install}-without"
        spec = replace(self.spec(), tags={**self.spec().tags, "tradewind-install": other})
        raises(SetupError, lambda: provider.launch(spec))
        self.advance(provider.listing_lag_s)
        assert not provider.list_owned(other)
        assert not provider.find(spec.token, self.region)

    def test_a_network_with_a_machine_in_it_is_not_removed(self) -> None:
        """`tear_down` raises UnavailableError, and the machine keeps everything it needs."""
        provider = self.connect()
        if not isinstance(provider, NeedsNetworks):
            return
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        raises(UnavailableError, lambda: provider.tear_down(self.install, ignore))
        here = [network for network in provider.networks(self.install) if network.region == self.region]
        assert [network.ready for network in here] == [True]
        self.release(provider, instance_id)

    def test_quotas_count_what_is_used(self) -> None:
        """`quotas` reports usage within its limit, by name and scope."""
        provider = self.connect()
        for quota in provider.quotas():
            assert 0 <= quota.used <= quota.limit
            assert quota.name
            assert quota.scope

    def test_classify_gives_an_error_of_ours_for_any_exception(self) -> None:
        """`classify` returns a ProviderError for any exception, and a ProviderError unchanged."""
        provider = self.connect()
        ours = ConflictError("ours")
        assert provider.classify(ours) is ours
        assert isinstance(provider.classify(OSError("theirs")), ProviderError)
        assert isinstance(provider.classify(KeyError("theirs")), ProviderError)
