"""Ends: times to live, termination, and reports about ended machines."""

from __future__ import annotations

from providers.instance import EndReason, InstanceState
from providers.testing.kit import HOUR_S, Kit, left


class Ending(Kit):
    """Tests of `renew` and `terminate`."""

    def test_time_to_live_ends_an_instance_by_itself(self) -> None:
        """An instance that is not renewed ends as EXPIRED."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec(time_to_live_s=int(HOUR_S)))
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(HOUR_S)
        ended = self.until(provider, instance_id, lambda found: not found.alive)
        assert ended.end_reason is EndReason.EXPIRED

    def test_an_instance_lives_as_long_as_it_is_renewed_and_not_longer(self) -> None:
        """`renew` extends the time to live, and billing ends with it."""
        provider = self.connect()
        ids = provider.launch(self.spec(count=2, time_to_live_s=int(HOUR_S)))
        for instance_id in ids:
            self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        for _ in range(2):
            self.advance(HOUR_S - 600)
            self.connect().renew([*ids, "no-such-instance"], int(HOUR_S))
        assert all(found.alive for found in provider.describe(ids))
        renewed_ms = self.now_ms()
        self.advance(HOUR_S - 60)
        assert all(found.alive for found in provider.describe(ids))
        self.advance(60)
        for instance_id in ids:
            ended = self.until(provider, instance_id, lambda found: not found.alive)
            assert ended.end_reason is EndReason.EXPIRED
            assert ended.billed_to_ms is not None
            assert ended.billed_to_ms <= renewed_ms + int((HOUR_S + self.late_s) * 1000) + 1000

    def test_what_ended_by_itself_while_nobody_asked_is_billed_until_then(self) -> None:
        """An expired instance is not billed until the next call, only until its expiry."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec(time_to_live_s=int(HOUR_S)))
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        due_ms = self.now_ms() + int(HOUR_S * 1000)
        self.advance(HOUR_S + 60)
        ended = self.until(self.connect(), instance_id, lambda found: not found.alive)
        assert ended.billed_to_ms is not None
        assert ended.billed_to_ms <= due_ms + int(self.late_s * 1000) + 1000

    def test_renewing_brings_nothing_back(self) -> None:
        """`renew` does not change an ended instance."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec(time_to_live_s=int(HOUR_S)))
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        ended = self.release(provider, instance_id)
        provider.renew([instance_id], int(HOUR_S))
        provider.renew([], int(HOUR_S))
        assert provider.describe([instance_id]) == [ended]

    def test_terminate_ends_an_instance_and_its_billing(self) -> None:
        """`terminate` ends an instance as USER, and its billing stays closed."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(60)
        ended = self.release(provider, instance_id)
        seen_ms = self.now_ms()
        assert ended.end_reason is EndReason.USER
        assert ended.billed_from_ms is not None
        assert ended.billed_to_ms is not None
        assert ended.billed_from_ms < ended.billed_to_ms <= seen_ms + 1000  # whole seconds may be billed
        self.advance(HOUR_S / 2)
        assert provider.describe([instance_id])[0].billed_to_ms == ended.billed_to_ms

    def test_terminate_is_idempotent_and_unknown_is_success(self) -> None:
        """`terminate` succeeds for ended and unknown instances."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        first = self.release(provider, instance_id)
        provider.terminate(instance_id)
        assert provider.describe([instance_id])[0] == first
        provider.terminate("no-such-instance")

    def test_terminate_works_from_a_client_that_did_not_launch(self) -> None:
        """Any client of the account can end an instance."""
        (instance_id,) = self.connect().launch(self.spec())
        self.release(self.connect(), instance_id)

    def test_terminate_right_after_launch_leaves_nothing_behind(self) -> None:
        """An instance that is terminated before it runs never starts."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        self.release(provider, instance_id)
        self.advance(HOUR_S / 2)
        assert not provider.list_owned(self.install)
        assert provider.describe([instance_id])[0].state is InstanceState.TERMINATED

    def test_the_end_of_one_machine_of_a_gang_leaves_the_others(self) -> None:
        """`terminate` ends exactly the machine that it names."""
        provider = self.connect()
        first, second = provider.launch(self.spec(count=2))
        self.release(provider, first)
        other = self.until(provider, second, lambda found: found.state is InstanceState.RUNNING)
        assert other.end_reason is None
        self.release(provider, second)

    def test_only_what_is_renewed_lives_on(self) -> None:
        """`renew` extends the machines that it names, and no other machine of their gang."""
        provider = self.connect()
        renewed, other = provider.launch(self.spec(count=2, time_to_live_s=int(HOUR_S)))
        for instance_id in (renewed, other):
            self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(HOUR_S - 600)
        provider.renew([renewed], int(HOUR_S))
        self.advance(600)
        self.until(provider, other, lambda found: not found.alive)
        assert left(provider, renewed).alive
        self.release(provider, renewed)

    def test_what_is_unknown_hides_nothing_that_is_known(self) -> None:
        """`describe` leaves out only unknown ids, and keeps the order of the request."""
        provider = self.connect()
        ids = provider.launch(self.spec(count=2))
        for instance_id in ids:
            self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        asked = ["no-such-instance", ids[1], ids[0]]
        assert [found.id for found in provider.describe(asked)] == asked[1:]
        self.release(provider, *ids)

    def test_an_ended_instance_is_described_for_an_hour_and_listed_no_more(self) -> None:
        """`describe` keeps an ended instance for an hour; `list_owned` omits it at once."""
        provider = self.connect()
        (instance_id,) = provider.launch(self.spec())
        ended = self.release(provider, instance_id)
        self.advance(HOUR_S - 60)
        assert provider.describe([instance_id]) == [ended]
        assert not provider.list_owned(self.install)

    def test_describe_leaves_out_what_never_was(self) -> None:
        """`describe` omits unknown ids instead of raising."""
        provider = self.connect()
        assert not provider.describe(["no-such-instance"])
        assert not provider.describe([])
