"""Launches: tokens, gangs, and reports about accepted machines."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from providers.errors import ConflictError, NotFoundError
from providers.instance import EndReason, InstanceState
from providers.testing.kit import HOUR_S, Kit, raises


class Launching(Kit):
    """Tests of `launch`, and of how `describe`, `find` and `list_owned` report it."""

    def test_launch_gives_as_many_distinct_instances_as_asked_for(self) -> None:
        """`launch` returns `count` distinct ids, and `describe` reports what was requested."""
        provider = self.connect()
        spec = self.spec(count=2)
        ids = provider.launch(spec)
        assert len(set(ids)) == 2
        for instance in provider.describe(ids):
            assert instance.provider == provider.name
            assert instance.offer_id == spec.offer_id
            assert instance.token == spec.token
            assert dict(instance.tags) == dict(spec.tags)
            assert instance.alive
        self.release(provider, *ids)

    def test_launch_with_the_same_token_and_spec_again_gives_the_same_ids(self) -> None:
        """`launch` is idempotent by token."""
        provider = self.connect()
        ids = provider.launch(self.spec())
        assert tuple(provider.launch(self.spec())) == tuple(ids)
        assert len(self.listed(provider, 1)) == 1
        self.release(provider, *ids)

    def test_the_token_holds_after_a_restart_of_the_caller(self) -> None:
        """Idempotency does not depend on the client's memory."""
        ids = self.connect().launch(self.spec())
        assert tuple(self.connect().launch(self.spec())) == tuple(ids)
        self.release(self.connect(), *ids)

    def test_the_token_holds_after_the_end_of_the_instance(self) -> None:
        """A repeated launch returns the ended instance's id and starts nothing."""
        provider = self.connect()
        ids = provider.launch(self.spec())
        self.release(provider, *ids)
        assert tuple(provider.launch(self.spec())) == tuple(ids)
        assert not provider.describe(ids)[0].alive

    def test_the_same_token_with_another_spec_is_a_conflict(self) -> None:
        """A token used for a different spec raises ConflictError."""
        provider = self.connect()
        ids = provider.launch(self.spec())
        spec = self.spec()
        for other in (
            replace(spec, user_data=spec.user_data + "# other"),
            replace(spec, tags={**spec.tags, "other": "1"}),
            replace(spec, count=2),
            replace(spec, time_to_live_s=7),
        ):
            raises(ConflictError, partial(provider.launch, other))
        self.release(provider, *ids)

    def test_launch_of_an_unknown_offer_is_refused_and_leaves_nothing(self) -> None:
        """An unknown offer raises NotFoundError and does not use up the token."""
        provider = self.connect()
        raises(NotFoundError, lambda: provider.launch(replace(self.spec(), offer_id=f"{provider.name}/no/such")))
        ids = provider.launch(self.spec())  # the token was not used up
        self.release(provider, *ids)

    def test_an_accepted_instance_is_described_listed_and_found_within_the_listing_lag(self) -> None:
        """After `listing_lag_s`, `describe`, `list_owned` and `find` report a launch, and only for its owner, token,
        region.
        """
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        self.advance(provider.listing_lag_s)
        assert [found.id for found in provider.describe([instance_id])] == [instance_id]
        assert [found.id for found in provider.list_owned(self.install)] == [instance_id]
        assert [found.id for found in provider.find("token-1", self.region)] == [instance_id]
        assert not provider.list_owned(f"{self.install}-other")
        assert not provider.find("token-2", self.region)
        assert not provider.find("token-1", f"{self.region}-other")
        self.release(provider, instance_id)

    def test_what_came_and_went_is_found_by_its_token_for_an_hour(self) -> None:
        """`find` reports ended instances for an hour, as `describe` does."""
        provider = self.connect()
        ids = provider.launch(self.spec(count=2))
        self.release(provider, *ids)
        self.advance(HOUR_S - 60)
        found = self.connect().find("token-1", self.region)
        assert sorted(each.id for each in found) == sorted(ids)
        assert [each.end_reason for each in found] == [EndReason.USER] * 2
        assert list(found) == list(provider.describe([each.id for each in found]))

    def test_the_machines_of_a_gang_keep_their_order(self) -> None:
        """A repeated launch returns the ids in the order of the first answer: ranks depend on it."""
        ids = self.connect().launch(self.spec(count=2))
        self.advance(self.connect().listing_lag_s)
        assert tuple(self.connect().launch(self.spec(count=2))) == tuple(ids)
        self.release(self.connect(), *ids)

    def test_a_machine_is_described_alike_wherever_it_is_shown(self) -> None:
        """`describe`, `find` and `list_owned` agree on its token, offer and tags."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(provider.listing_lag_s)
        shown = [
            *provider.describe([instance_id]),
            *self.connect().find("token-1", self.region),
            *self.connect().list_owned(self.install),
        ]
        known = {(each.id, each.token, each.offer_id, tuple(sorted(each.tags.items()))) for each in shown}
        assert len(shown) == 3
        assert known == {(instance_id, "token-1", self.offer_id, tuple(sorted(self.spec().tags.items())))}
        self.release(provider, instance_id)

    def test_paces_are_durations(self) -> None:
        """`listing_lag_s` and `describe_every_s` are not negative."""
        provider = self.connect()
        assert provider.listing_lag_s >= 0
        assert provider.describe_every_s >= 0

    def test_an_instance_comes_up_and_is_billed_from_then_at_the_latest(self) -> None:
        """An instance reaches RUNNING, and its billing has started by then."""
        provider = self.connect()
        before_ms = self.now_ms()
        (instance_id,) = provider.launch(self.spec())
        instance = self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        assert instance.billed_from_ms is not None
        assert before_ms - 1000 <= instance.billed_from_ms <= self.now_ms()
        assert instance.billed_to_ms is None
        assert instance.end_reason is None
        self.release(provider, instance_id)
