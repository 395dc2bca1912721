"""Trouble: no capacity, quotas, lost answers, late listings, notices and machines that are taken away."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from providers.errors import CapacityError, QuotaError, UnavailableError
from providers.instance import EndReason, InstanceState
from providers.testing.kit import HOUR_S, Kit, left, raises

LOOKS = 5
"""At a launch within the listing lag."""


class Trouble(Kit):
    """Tests of trouble that a cloud causes. Trouble that the hooks cannot arrange is not tested."""

    # --- capacity and quotas ---

    def test_a_gang_beyond_the_capacity_is_refused_whole(self) -> None:
        """CapacityError, and no machine is launched."""
        provider = self.connect()
        if not self.limit_capacity(1):
            return
        raises(CapacityError, lambda: provider.launch(self.spec(count=2)))
        self.advance(provider.listing_lag_s)
        assert not provider.list_owned(self.install)
        assert not [found for found in provider.find("token-1", self.region) if found.alive]

    def test_missing_capacity_is_said_to_be_local_and_other_offers_go_on(self) -> None:
        """The error applies to a zone or region, and a launch elsewhere is granted."""
        provider = self.connect()
        if not (self.other_offer_id and self.limit_capacity(0)):
            return
        assert raises(CapacityError, lambda: provider.launch(self.spec())).scope in ("zone", "region")
        ids = provider.launch(replace(self.spec(token="token-2"), offer_id=self.other_offer_id))
        self.release(provider, *ids)

    def test_a_token_that_was_refused_is_granted_when_there_is_capacity(self) -> None:
        """A refusal does not use up the token."""
        provider = self.connect()
        if not self.limit_capacity(0):
            return
        raises(CapacityError, lambda: provider.launch(self.spec()))
        self.limit_capacity(1)
        ids = self.connect().launch(self.spec())
        assert len(ids) == 1
        self.release(provider, *ids)

    def test_a_launch_beyond_the_quota_is_the_quotas_fault_and_leaves_nothing(self) -> None:
        """QuotaError, not CapacityError, with a remedy; of a gang, too."""
        provider = self.connect()
        if not self.limit_quota(1):
            return
        assert raises(QuotaError, lambda: provider.launch(self.spec(count=2))).hint
        self.advance(provider.listing_lag_s)
        assert not provider.list_owned(self.install)
        ids = provider.launch(self.spec())
        self.release(provider, *ids)

    def test_a_quota_of_zero_grants_nothing(self) -> None:
        """QuotaError, and `quotas` reports a limit of 0."""
        provider = self.connect()
        if not self.limit_quota(0):
            return
        raises(QuotaError, lambda: provider.launch(self.spec()))
        assert any(quota.limit == 0 for quota in self.connect().quotas())

    def test_quotas_count_a_machine_while_it_lives(self) -> None:
        """Usage rises with a launch and falls with its end."""
        provider = self.connect()
        if not self.limit_quota(2):
            return

        def used() -> int:
            return sum(quota.used for quota in self.connect().quotas())

        before = used()
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        assert used() > before
        self.release(provider, instance_id)
        assert used() == before

    # --- answers that are lost or late ---

    def test_a_launch_whose_answer_is_lost_is_found_and_not_doubled(self) -> None:
        """`find` shows the machine within the listing lag, and the same token returns it again."""
        self._lost_launch(1)

    def test_a_gang_whose_answer_is_lost_is_found_whole_and_not_doubled(self) -> None:
        """Every machine of the launch."""
        self._lost_launch(2)

    def _lost_launch(self, count: int) -> None:
        provider = self.connect()
        if not self.lose_reply("launch"):
            return
        with suppress(UnavailableError):
            provider.launch(self.spec(count=count))
        self.advance(provider.listing_lag_s)
        found = sorted(each.id for each in self.connect().find("token-1", self.region) if each.alive)
        assert len(found) == count
        assert sorted(self.connect().launch(self.spec(count=count))) == found
        assert sorted(each.id for each in provider.list_owned(self.install)) == found
        self.release(provider, *found)

    def test_an_end_whose_answer_is_lost_may_be_asked_for_again(self) -> None:
        """The machine ends once, with the reason USER."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        if self.lose_reply("terminate"):
            with suppress(UnavailableError):
                provider.terminate(instance_id)
            ended = self.release(provider, instance_id)
            assert ended.end_reason is EndReason.USER
        self.release(provider, instance_id)

    def test_a_launch_is_never_said_to_have_ended_before_it_is_shown(self) -> None:
        """Within the listing lag, `describe` leaves the machine out or shows it alive, and `find` agrees."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        for _ in range(LOOKS):
            for found in (*provider.describe([instance_id]), *provider.find("token-1", self.region)):
                assert found.id == instance_id
                assert found.alive
            self.advance(provider.listing_lag_s / LOOKS)
        assert left(provider, instance_id).alive
        self.release(provider, instance_id)

    # --- notices ---

    def test_a_notice_has_its_deadline_and_the_machine_runs_until_then(self) -> None:
        """`notice_deadline_ms` is None before, and later than now; the machine is alive meanwhile."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        running = self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        assert running.notice_deadline_ms is None
        if self.announce_end(instance_id):
            noticed = self.until(provider, instance_id, lambda found: found.notice_deadline_ms is not None)
            assert noticed.alive
            assert noticed.notice_deadline_ms is not None
            assert noticed.notice_deadline_ms > self.now_ms()
        self.release(provider, instance_id)

    def test_a_machine_that_is_taken_away_was_preempted_and_is_billed_until_then(self) -> None:
        """Not FAILED: its offer is not at fault. It is no longer listed."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(60)
        if not self.take_away(instance_id):
            self.release(provider, instance_id)
            return
        ended = self.until(self.connect(), instance_id, lambda found: not found.alive)
        seen_ms = self.now_ms()
        assert ended.end_reason is EndReason.PREEMPTED
        assert ended.billed_to_ms is not None
        assert ended.billed_to_ms <= seen_ms + 1000
        self.advance(HOUR_S / 2)
        assert left(provider, instance_id).billed_to_ms == ended.billed_to_ms
        assert not provider.list_owned(self.install)
