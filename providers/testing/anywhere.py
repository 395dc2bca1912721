"""Anywhere: launches that name several offers, which one call of the cloud can take."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from providers.base import LaunchesAnywhere, LaunchSpec
from providers.errors import CapacityError, ConflictError, NotTogetherError, QuotaError, SetupError, UnavailableError
from providers.instance import InstanceState
from providers.testing.kit import Kit, raises


class Anywhere(Kit):
    """Tests of LaunchesAnywhere. They are skipped for other providers, and for a test without `next_door`."""

    def connect_any(self) -> LaunchesAnywhere | None:
        """A new client, if it can take any of several offers."""
        provider = self.connect()
        return provider if self.next_door and isinstance(provider, LaunchesAnywhere) else None

    def any_spec(self, *, count: int = 1, token: str = "token-1") -> LaunchSpec:
        """A launch of `count` machines of `offer_id` or `next_door`."""
        return replace(self.spec(count=count, token=token), also=(self.next_door,))

    def test_a_launch_lands_next_door_if_only_that_has_room(self) -> None:
        """Every answer reports the machine with the granted offer."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or not self.limit_capacity(0):
            return
        assert provider.most_offers(1) > 1
        landed = provider.launch_any(self.any_spec())
        assert landed.offer_id == self.next_door
        self.until(client, landed.instance_ids[0], lambda found: found.state is InstanceState.RUNNING)
        self.advance(client.listing_lag_s)
        shown = [
            *self.connect().describe(landed.instance_ids),
            *self.connect().find("token-1", self.region),
            *self.connect().list_owned(self.install),
        ]
        known = {(each.id, each.token, each.offer_id, tuple(sorted(each.tags.items()))) for each in shown}
        assert len(shown) == 3
        tags = tuple(sorted(self.spec().tags.items()))
        assert known == {(landed.instance_ids[0], "token-1", self.next_door, tags)}
        self.release(client, *landed.instance_ids)

    def test_a_launch_anywhere_takes_one_of_its_offers_while_all_have_room(self) -> None:
        """And no other machine, in no other zone."""
        provider, client = self.connect_any(), self.connect()
        if provider is None:
            return
        landed = provider.launch_any(self.any_spec())
        assert landed.offer_id in (self.offer_id, self.next_door)
        assert [each.id for each in self.listed(client, 1)] == list(landed.instance_ids)
        self.release(client, *landed.instance_ids)

    def test_the_token_of_a_launch_anywhere_holds_wherever_it_landed(self) -> None:
        """Also after a restart of the caller, and when the better offer has capacity again."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or not self.limit_capacity(0):
            return
        landed = provider.launch_any(self.any_spec())
        self.limit_capacity(9)
        for _ in range(2):
            again = self.connect_any()
            assert again is not None
            assert self.at_last(again, self.any_spec()) == landed
        self.until(client, landed.instance_ids[0], lambda found: found.state is InstanceState.RUNNING)
        assert self.at_last(provider, self.any_spec()) == landed
        assert len(self.listed(client, 1)) == 1
        self.release(client, *landed.instance_ids)
        assert self.at_last(provider, self.any_spec()).instance_ids == landed.instance_ids
        self.advance(client.listing_lag_s)
        assert not client.list_owned(self.install)

    def test_a_launch_anywhere_whose_answer_is_lost_is_found_and_not_doubled(self) -> None:
        """`find` shows it in its zone, and the same token gives it again."""
        self._lost(1)

    def test_a_gang_anywhere_whose_answer_is_lost_is_found_whole_and_not_doubled(self) -> None:
        """Every machine of the launch."""
        self._lost(2)

    def _lost(self, count: int) -> None:
        provider, client = self.connect_any(), self.connect()
        if provider is None or provider.most_offers(count) == 1:
            return
        if not (self.limit_capacity(0) and self.lose_reply("launch")):
            return
        with suppress(UnavailableError):
            provider.launch_any(self.any_spec(count=count))
        self.limit_capacity(9)
        self.advance(client.listing_lag_s)
        found = sorted(each.id for each in self.connect().find("token-1", self.region) if each.alive)
        assert len(found) == count
        again = self.at_last(provider, self.any_spec(count=count))
        assert (again.offer_id, sorted(again.instance_ids)) == (self.next_door, found)
        assert sorted(each.id for each in client.list_owned(self.install)) == found
        self.release(client, *found)

    def test_a_gang_lands_whole_in_one_zone(self) -> None:
        """Not in a zone with capacity for only a part of the machines."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or provider.most_offers(2) == 1 or not self.limit_capacity(1):
            return
        landed = provider.launch_any(self.any_spec(count=2))
        assert landed.offer_id == self.next_door
        assert len(set(landed.instance_ids)) == 2
        self.advance(client.listing_lag_s)
        shown = client.describe(landed.instance_ids)
        assert [(each.id, each.offer_id) for each in shown] == [(each, self.next_door) for each in landed.instance_ids]
        assert self.at_last(provider, self.any_spec(count=2)) == landed
        self.release(client, *landed.instance_ids)

    def test_a_gang_that_only_two_zones_together_have_room_for_is_refused_whole(self) -> None:
        """CapacityError, and no machine is launched."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or provider.most_offers(2) == 1:
            return
        if not (self.limit_capacity(1) and self.limit_capacity_next_door(1)):
            return
        raises(CapacityError, lambda: provider.launch_any(self.any_spec(count=2)))
        self.advance(client.listing_lag_s)
        assert not client.list_owned(self.install)
        assert not [each for each in client.find("token-1", self.region) if each.alive]

    def test_where_no_zone_has_room_it_is_capacity_and_the_token_is_not_used_up(self) -> None:
        """The next try with the token is granted once there is capacity."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or not (self.limit_capacity(0) and self.limit_capacity_next_door(0)):
            return
        assert raises(CapacityError, lambda: provider.launch_any(self.any_spec())).scope in ("zone", "region")
        self.limit_capacity_next_door(1)
        again = self.connect_any()
        assert again is not None
        landed = again.launch_any(self.any_spec())
        assert landed.offer_id == self.next_door
        self.advance(client.listing_lag_s)
        assert [each.id for each in client.list_owned(self.install)] == list(landed.instance_ids)
        self.release(client, *landed.instance_ids)

    def test_a_quota_is_none_of_capacity_in_any_zone(self) -> None:
        """QuotaError, and nothing is left."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or not self.limit_quota(0):
            return
        assert raises(QuotaError, lambda: provider.launch_any(self.any_spec())).hint
        self.advance(client.listing_lag_s)
        assert not client.list_owned(self.install)

    def test_offers_that_cannot_be_asked_for_together_are_asked_for_one_at_a_time(self) -> None:
        """NotTogetherError, nothing is launched, and from then on a launch may name one offer."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or not self.refuse_together():
            return
        raises(NotTogetherError, lambda: provider.launch_any(self.any_spec()))
        assert provider.most_offers(1) == 1
        self.advance(client.listing_lag_s)
        assert not client.list_owned(self.install)

    def test_the_same_token_for_another_launch_anywhere_is_a_conflict(self) -> None:
        """Also for the same offers."""
        provider, client = self.connect_any(), self.connect()
        if provider is None:
            return
        spec = self.any_spec()
        landed = provider.launch_any(spec)
        self.advance(client.listing_lag_s)
        raises(ConflictError, lambda: provider.launch_any(replace(spec, user_data=spec.user_data + "# other")))
        raises(ConflictError, lambda: provider.launch_any(replace(spec, tags={**spec.tags, "other": "1"})))
        self.release(client, *landed.instance_ids)

    def connect_mixing(self) -> LaunchesAnywhere | None:
        """A new client, if it can take any of several types."""
        provider = self.connect()
        return provider if self.other_type and isinstance(provider, LaunchesAnywhere) and provider.mixes_types else None

    def test_a_launch_lands_on_another_type_if_only_that_has_room(self) -> None:
        """Every answer reports the machine with the granted type, and the same token returns it again."""
        provider, client = self.connect_mixing(), self.connect()
        if provider is None or not self.limit_capacity(0):
            return
        spec = replace(self.spec(), also=(self.other_type,))
        landed = provider.launch_any(spec)
        assert landed.offer_id == self.other_type
        self.until(client, landed.instance_ids[0], lambda found: found.state is InstanceState.RUNNING)
        self.advance(client.listing_lag_s)
        found = [
            *self.connect().describe(landed.instance_ids),
            *self.connect().find("token-1", self.region),
            *self.connect().list_owned(self.install),
        ]
        assert [(each.id, each.offer_id) for each in found] == [(landed.instance_ids[0], self.other_type)] * 3
        self.limit_capacity(9)
        assert self.at_last(provider, spec) == landed
        self.release(client, *landed.instance_ids)

    def test_a_gang_is_whole_of_one_type(self) -> None:
        """Not of two types that each have capacity for only a part of the machines."""
        provider, client = self.connect_mixing(), self.connect()
        if provider is None or provider.most_offers(2) == 1:
            return
        if not (self.limit_capacity(1) and self.limit_capacity_of_other_type(1)):
            return
        spec = replace(self.spec(count=2), also=(self.other_type,))
        raises(CapacityError, lambda: provider.launch_any(spec))
        self.advance(client.listing_lag_s)
        assert not client.list_owned(self.install)
        self.limit_capacity_of_other_type(2)
        landed = self.at_last(provider, spec)
        assert (landed.offer_id, len(landed.instance_ids)) == (self.other_type, 2)
        self.advance(client.listing_lag_s)
        assert [each.offer_id for each in client.describe(landed.instance_ids)] == [self.other_type] * 2
        self.release(client, *landed.instance_ids)

    def test_types_are_mixed_only_where_the_provider_says_so(self) -> None:
        """SetupError, and nothing is launched."""
        provider, client = self.connect_any(), self.connect()
        if provider is None or not self.other_type or provider.mixes_types:
            return
        raises(SetupError, lambda: provider.launch_any(replace(self.spec(), also=(self.other_type,))))
        self.advance(client.listing_lag_s)
        assert not client.list_owned(self.install)
