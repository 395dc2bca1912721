"""Each contract of the kit is one that some broken provider fails: a table of breakages of the fake cloud's client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from providers.base import Landed, LaunchSpec, Quota
from providers.billing.charges import Usage
from providers.errors import (
    CapacityError,
    ConflictError,
    NotFoundError,
    NotTogetherError,
    ProviderError,
    QuotaError,
    SetupError,
    ThrottledError,
    UnavailableError,
)
from providers.fake import FakeProvider
from providers.instance import EndReason, Instance, InstanceState
from providers.network import Network, NetworkPart
from providers.offer import Offer, OfferId
from providers.price import PricePoint
from providers.testing import ProviderContract
from tests.contract.test_fake import FakeContract


class Sound(FakeProvider):
    """With networks, which the fake cloud does not have."""

    def _made(self) -> dict[str, int]:
        return self.cloud.__dict__.setdefault("networks", {})

    def networks(self, install: str) -> Sequence[Network]:
        parts = (NetworkPart("network", f"n-{self._made()[install]}"),) if install in self._made() else ()
        return [Network(self.name, "alpha", parts, () if parts else ("network",))]

    def set_up(self, install: str, progress: Callable[[str], None]) -> None:
        self._made().setdefault(install, len(self._made()))

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        if self.cloud.listed(install):
            raise UnavailableError("in use")
        self._made().pop(install, None)

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        if spec.tags["tradewind-install"] not in self._made():
            raise SetupError("no network")
        return super().launch(spec)


class Changed(Sound):
    """Says something else about machines."""

    def change(self, found: Instance) -> Instance:
        raise NotImplementedError

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        return [self.change(each) for each in super().describe(instance_ids)]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        return [self.change(each) for each in super().find(token, region)]


class ForgetsTokens(Sound):
    """Every launch is a new one."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        number = self.cloud.__dict__["number"] = self.cloud.__dict__.get("number", 0) + 1
        return super().launch(replace(spec, token=f"{spec.token}.{number}" if number > 1 else spec.token))


class KeepsTokensInMemory(Sound):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._known: dict[str, tuple[str, ...]] = {}

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        if spec.token not in self._known:
            number = self.cloud.__dict__["number"] = self.cloud.__dict__.get("number", 0) + 1
            self._known[spec.token] = super().launch(replace(spec, token=f"{spec.token}.{number}"))
        return self._known[spec.token]


class LaunchesAgainAfterTheEnd(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        if any(not each.alive for each in self.cloud.instances() if each.token == spec.token):
            spec = replace(spec, token=f"{spec.token}.again")
        return super().launch(spec)


class TakesAnySpecForAToken(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except ConflictError:
            return tuple(each.id for each in self.cloud.found(spec.token, "alpha"))


class LaunchesOne(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        return super().launch(replace(spec, count=1))


class LaunchesHalfAGang(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except (CapacityError, QuotaError):
            super().launch(replace(spec, count=1))
            raise


class Reverses(Sound):
    """A repeated launch names machines in another order."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        again = self.cloud.accepted(spec.token)
        ids = super().launch(spec)
        return ids[::-1] if again else ids


class TakesUnknownOffers(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except NotFoundError:
            return ()


class SaysThrottled(Sound):
    """Has one error for everything."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except (CapacityError, QuotaError) as error:
            raise ThrottledError(str(error)) from error


class MistakesQuotaForCapacity(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except QuotaError as error:
            raise CapacityError(str(error)) from error


class BlamesTheAccountForCapacity(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except CapacityError as error:
            raise CapacityError(str(error), scope="account") from error


class RemembersRefusals(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        refused = self.cloud.__dict__.setdefault("refused", set())
        if spec.token in refused:
            raise CapacityError("as before")
        try:
            return super().launch(spec)
        except CapacityError:
            refused.add(spec.token)
            raise


class HasNoQuotas(Sound):
    def quotas(self) -> Sequence[Quota]:
        return []


class HasOddQuotas(Sound):
    def quotas(self) -> Sequence[Quota]:
        return [Quota("", "account", 1, 2)]


class ShowsNothing(Sound):
    def find(self, token: str, region: str) -> Sequence[Instance]:
        return []


class FindsOnlyTheLiving(Sound):
    def find(self, token: str, region: str) -> Sequence[Instance]:
        return [each for each in super().find(token, region) if each.alive]


class IsSlow(Sound):
    listing_lag_s = property(lambda _: -1.0)  # type: ignore[assignment]


class SaysEndedBeforeShown(Sound):
    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        found = list(super().describe(instance_ids))
        pending = [each for each in found if each.state is InstanceState.PENDING]
        ended = [replace(each, state=InstanceState.TERMINATED) for each in pending]
        return [*ended, *(each for each in found if each not in pending)]


class NeverRuns(Changed):
    def change(self, found: Instance) -> Instance:
        return replace(found, state=InstanceState.PENDING) if found.state is InstanceState.RUNNING else found


class BillsForEver(Changed):
    """The bill goes on with every look."""

    def change(self, found: Instance) -> Instance:
        ends = found.billed_to_ms is not None
        return replace(found, billed_to_ms=self._clock.now_ms() + 3_600_000) if ends else found


class SaysFailed(Changed):
    """Every end is a failure."""

    def change(self, found: Instance) -> Instance:
        return found if found.alive else replace(found, end_reason=EndReason.FAILED)


class NotesNothing(Changed):
    """A notice has no deadline."""

    def change(self, found: Instance) -> Instance:
        return replace(found, notice_deadline_ms=None)


class ListsOthers(Sound):
    def list_owned(self, install: str) -> Sequence[Instance]:
        return [each for each in self.cloud.instances() if each.alive]


class ListsTheEnded(Sound):
    def list_owned(self, install: str) -> Sequence[Instance]:
        return [each for each in self.cloud.instances() if each.tags.get("tradewind-install") == install]


class LosesTags(Sound):
    def list_owned(self, install: str) -> Sequence[Instance]:
        return [replace(each, tags={}) for each in super().list_owned(install)]


class KeepsWhatIsNotRenewed(Sound):
    """Machines have no time to live."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        return super().launch(replace(spec, time_to_live_s=None))


class RenewsNothing(Sound):
    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        return None


class RenewsAll(Sound):
    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        super().renew([each.id for each in self.cloud.instances()], time_to_live_s)


class RenewsTheEnded(Changed):
    def change(self, found: Instance) -> Instance:
        renewed = found.id in self.cloud.__dict__.get("renewed", ())
        return replace(found, state=InstanceState.RUNNING) if renewed else found

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        self.cloud.__dict__.setdefault("renewed", set()).update(instance_ids)
        super().renew(instance_ids, time_to_live_s)


class NeverEnds(Sound):
    def terminate(self, instance_id: str) -> None:
        return None


class EndsAll(Sound):
    def terminate(self, instance_id: str) -> None:
        for each in self.cloud.instances():
            super().terminate(each.id)


class EndsOnlyOnce(Sound):
    """The second time, and for what it does not know, it complains."""

    def terminate(self, instance_id: str) -> None:
        found = self.cloud.instance(instance_id)
        asked = self.cloud.__dict__.setdefault("asked", set())
        if found is None or instance_id in asked:
            raise NotFoundError(instance_id)
        asked.add(instance_id)
        super().terminate(instance_id)


class EndsOnlyItsOwn(Sound):
    """What another client launched is unknown to it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._own: set[str] = set()

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        ids = super().launch(spec)
        self._own |= {*ids}
        return ids

    def terminate(self, instance_id: str) -> None:
        if instance_id in self._own:
            super().terminate(instance_id)


class ForgetsTheEnded(Sound):
    """After ten minutes."""

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        seen_ms, now_ms = self.cloud.__dict__.setdefault("ended", {}), self._clock.now_ms()
        found = list(super().describe(instance_ids))
        for each in found:
            if not each.alive:
                seen_ms.setdefault(each.id, now_ms)
        return [each for each in found if seen_ms.get(each.id, now_ms) > now_ms - 600_000]


class RaisesForTheUnknown(Sound):
    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        if any(self.cloud.instance(each) is None for each in instance_ids):
            raise NotFoundError("no such machine")
        return super().describe(instance_ids)


class HidesAllForOneUnknown(Sound):
    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        found = super().describe(instance_ids)
        return found if len(found) == len(instance_ids) else []


class OffersTwice(Sound):
    def offers(self) -> Sequence[Offer]:
        return [*super().offers(), *super().offers()]


class HasNoPrice(Sound):
    def prices(self) -> Sequence[PricePoint]:
        return list(super().prices())[1:]


class HasNoPast(Sound):
    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        return [each for each in super().price_history(since_ms) if each.effective_at_ms > since_ms]


class RoundsItsBill(Sound):
    def bill_nano_usd(self, instance_id: str) -> int:
        return round(super().bill_nano_usd(instance_id), -9)


class BillsTheUnknown(Sound):
    def bill_nano_usd(self, instance_id: str) -> int:
        return super().bill_nano_usd(instance_id) if self.cloud.instance(instance_id) else 0


class MetersNothing(Sound):
    def meter(self, instance_id: str, usage: Usage) -> None:
        return None


class ReplacesAnyClaim(Sound):
    def replace_claim(self, install: str, present: str | None, word: str) -> bool:
        return super().replace_claim(install, super().claim(install), word)


class ClassifiesNothing(Sound):
    def classify(self, error: BaseException) -> ProviderError:
        return error  # type: ignore[return-value]


class LeavesNetworks(Sound):
    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        return None


class CutsNetworks(Sound):
    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        self._made().pop(install, None)


class NeedsNoNetwork(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        self._made().setdefault(spec.tags["tradewind-install"], 0)
        return super().launch(spec)


class AsksOneZone(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        return super().launch_any(replace(spec, also=()))


class LaunchesOneAlone(Sound):
    """Without saying that it cannot ask for several."""

    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except NotTogetherError:
            return super().launch_any(replace(spec, also=()))


class LaunchesInEachZone(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        for number, other in enumerate(spec.also):
            super().launch_any(replace(spec, token=f"{spec.token}.{number}", offer_id=other, also=()))
        return super().launch_any(spec)


class ForgetsWhereItLanded(Sound):
    """Every call asks anew, in the zones of this one."""

    def launch_any(self, spec: LaunchSpec) -> Landed:
        number = self.cloud.__dict__["number"] = self.cloud.__dict__.get("number", 0) + 1
        return super().launch_any(replace(spec, token=f"{spec.token}.{number}" if number > 1 else spec.token))


class AsksOneType(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        kind = OfferId.parse(spec.offer_id).instance_type
        also = tuple(each for each in spec.also if OfferId.parse(each).instance_type == kind)
        return super().launch_any(replace(spec, also=also))


class MixesTypesWithoutSayingSo(Sound):
    @property
    def mixes_types(self) -> bool:
        return False

    def launch_any(self, spec: LaunchSpec) -> Landed:
        return super().launch_any(replace(spec, also=()))


class SplitsGangs(Sound):
    """Each machine where there is room."""

    def launch_any(self, spec: LaunchSpec) -> Landed:
        tokens = [f"{spec.token}.{number}" for number in range(spec.count)]
        parts = [super(SplitsGangs, self).launch_any(replace(spec, token=token, count=1)) for token in tokens]
        return Landed(parts[-1].offer_id, tuple(each for part in parts for each in part.instance_ids))


class SaysNothingOfCapacity(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except CapacityError as error:
            raise UnavailableError(str(error)) from error


class TakesQuotaForCapacityAnywhere(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except QuotaError as error:
            raise CapacityError(str(error)) from error


class TakesAnyOffersForAToken(Sound):
    def launch_any(self, spec: LaunchSpec) -> Landed:
        try:
            return super().launch_any(spec)
        except ConflictError:
            (found, *_) = self.cloud.found(spec.token, "alpha")
            return Landed(found.offer_id, (found.id,))


FAILS: dict[str, type[FakeProvider]] = {
    "a_claim_is_replaced_only_by_who_knows_it": ReplacesAnyClaim,
    "networks_are_made_once_and_removed_to_the_last_part": LeavesNetworks,
    "nothing_is_launched_without_a_network": NeedsNoNetwork,
    "a_network_with_a_machine_in_it_is_not_removed": CutsNetworks,
    "quotas_count_what_is_used": HasOddQuotas,
    "classify_gives_an_error_of_ours_for_any_exception": ClassifiesNothing,
    "launch_gives_as_many_distinct_instances_as_asked_for": LaunchesOne,
    "launch_with_the_same_token_and_spec_again_gives_the_same_ids": ForgetsTokens,
    "the_token_holds_after_a_restart_of_the_caller": KeepsTokensInMemory,
    "the_token_holds_after_the_end_of_the_instance": LaunchesAgainAfterTheEnd,
    "the_same_token_with_another_spec_is_a_conflict": TakesAnySpecForAToken,
    "launch_of_an_unknown_offer_is_refused_and_leaves_nothing": TakesUnknownOffers,
    "an_accepted_instance_is_described_listed_and_found_within_the_listing_lag": ListsOthers,
    "what_came_and_went_is_found_by_its_token_for_an_hour": FindsOnlyTheLiving,
    "the_machines_of_a_gang_keep_their_order": Reverses,
    "a_machine_is_described_alike_wherever_it_is_shown": LosesTags,
    "paces_are_durations": IsSlow,
    "an_instance_comes_up_and_is_billed_from_then_at_the_latest": NeverRuns,
    "time_to_live_ends_an_instance_by_itself": KeepsWhatIsNotRenewed,
    "an_instance_lives_as_long_as_it_is_renewed_and_not_longer": RenewsNothing,
    "what_ended_by_itself_while_nobody_asked_is_billed_until_then": BillsForEver,
    "renewing_brings_nothing_back": RenewsTheEnded,
    "terminate_ends_an_instance_and_its_billing": SaysFailed,
    "terminate_is_idempotent_and_unknown_is_success": EndsOnlyOnce,
    "terminate_works_from_a_client_that_did_not_launch": EndsOnlyItsOwn,
    "terminate_right_after_launch_leaves_nothing_behind": NeverEnds,
    "the_end_of_one_machine_of_a_gang_leaves_the_others": EndsAll,
    "only_what_is_renewed_lives_on": RenewsAll,
    "what_is_unknown_hides_nothing_that_is_known": HidesAllForOneUnknown,
    "an_ended_instance_is_described_for_an_hour_and_listed_no_more": ListsTheEnded,
    "describe_leaves_out_what_never_was": RaisesForTheUnknown,
    "a_gang_beyond_the_capacity_is_refused_whole": LaunchesHalfAGang,
    "missing_capacity_is_said_to_be_local_and_other_offers_go_on": BlamesTheAccountForCapacity,
    "a_token_that_was_refused_is_granted_when_there_is_capacity": RemembersRefusals,
    "a_launch_beyond_the_quota_is_the_quotas_fault_and_leaves_nothing": MistakesQuotaForCapacity,
    "a_quota_of_zero_grants_nothing": SaysThrottled,
    "quotas_count_a_machine_while_it_lives": HasNoQuotas,
    "a_launch_whose_answer_is_lost_is_found_and_not_doubled": ForgetsTokens,
    "a_gang_whose_answer_is_lost_is_found_whole_and_not_doubled": ShowsNothing,
    "an_end_whose_answer_is_lost_may_be_asked_for_again": EndsOnlyOnce,
    "a_launch_is_never_said_to_have_ended_before_it_is_shown": SaysEndedBeforeShown,
    "a_notice_has_its_deadline_and_the_machine_runs_until_then": NotesNothing,
    "a_machine_that_is_taken_away_was_preempted_and_is_billed_until_then": SaysFailed,
    "a_launch_lands_next_door_if_only_that_has_room": AsksOneZone,
    "a_launch_anywhere_takes_one_of_its_offers_while_all_have_room": LaunchesInEachZone,
    "the_token_of_a_launch_anywhere_holds_wherever_it_landed": ForgetsWhereItLanded,
    "a_launch_anywhere_whose_answer_is_lost_is_found_and_not_doubled": ForgetsWhereItLanded,
    "a_gang_anywhere_whose_answer_is_lost_is_found_whole_and_not_doubled": ForgetsWhereItLanded,
    "a_gang_lands_whole_in_one_zone": SplitsGangs,
    "a_gang_that_only_two_zones_together_have_room_for_is_refused_whole": SplitsGangs,
    "a_launch_lands_on_another_type_if_only_that_has_room": AsksOneType,
    "a_gang_is_whole_of_one_type": SplitsGangs,
    "types_are_mixed_only_where_the_provider_says_so": MixesTypesWithoutSayingSo,
    "where_no_zone_has_room_it_is_capacity_and_the_token_is_not_used_up": SaysNothingOfCapacity,
    "a_quota_is_none_of_capacity_in_any_zone": TakesQuotaForCapacityAnywhere,
    "offers_that_cannot_be_asked_for_together_are_asked_for_one_at_a_time": LaunchesOneAlone,
    "the_same_token_for_another_launch_anywhere_is_a_conflict": TakesAnyOffersForAToken,
    "offers_are_distinct_in_a_fixed_order_and_say_whose_they_are": OffersTwice,
    "every_offer_has_one_price_in_force": HasNoPrice,
    "price_history_begins_with_the_price_in_force_and_ends_with_the_present": HasNoPast,
    "the_bill_is_the_interval_at_the_prices_of_the_history": RoundsItsBill,
    "checkpoints_are_billed_by_the_last_report_where_the_machine_is": MetersNothing,
    "the_bill_of_an_unknown_instance_is_not_found": BillsTheUnknown,
}
ALSO = {
    "an_ended_instance_is_described_for_an_hour_and_listed_no_more": ForgetsTheEnded,
    "a_gang_beyond_the_capacity_is_refused_whole": SaysThrottled,
    "a_launch_whose_answer_is_lost_is_found_and_not_doubled": KeepsTokensInMemory,
}


def contracts() -> set[str]:
    return {name.removeprefix("test_") for name in dir(ProviderContract) if name.startswith("test_")}


def contract(provider: type[FakeProvider]) -> FakeContract:
    class Broken(FakeContract):
        def connect(self) -> FakeProvider:
            return provider(self.clock, cloud=self.cloud, faults=self.faults)

    made = Broken()
    made.setup_method()
    Sound(made.clock, cloud=made.cloud).set_up(made.install, lambda _: None)
    return made


def test_there_are_at_least_forty_contracts_and_each_has_its_breakage() -> None:
    assert contracts() == FAILS.keys()
    assert len(FAILS) >= 40


@pytest.mark.parametrize("name", sorted(FAILS))
def test_a_sound_provider_keeps_it(name: str) -> None:
    getattr(contract(Sound), f"test_{name}")()


@pytest.mark.parametrize(("name", "provider"), sorted([*FAILS.items(), *ALSO.items()], key=str))
def test_a_broken_provider_fails_it(name: str, provider: type[FakeProvider]) -> None:
    with pytest.raises((AssertionError, ProviderError, ValueError, IndexError)):
        getattr(contract(provider), f"test_{name}")()
