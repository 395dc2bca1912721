"""Each contract of the kit is one that some broken provider fails: a table of breakages of the fake cloud's client."""

from __future__ import annotations

import pytest

from providers.errors import (
    ProviderError,
)
from providers.fake import FakeProvider
from providers.testing import ProviderContract
from tests.contract.broken_launches import (
    BlamesTheAccountForCapacity,
    ForgetsTokens,
    HasNoQuotas,
    HasOddQuotas,
    KeepsTokensInMemory,
    LaunchesAgainAfterTheEnd,
    LaunchesHalfAGang,
    LaunchesOne,
    MistakesQuotaForCapacity,
    NeedsNoNetwork,
    RemembersRefusals,
    Reverses,
    SaysThrottled,
    TakesAnySpecForAToken,
    TakesUnknownOffers,
)
from tests.contract.broken_launches_anywhere import (
    AsksOneType,
    AsksOneZone,
    ForgetsWhereItLanded,
    LaunchesInEachZone,
    LaunchesOneAlone,
    MixesTypesWithoutSayingSo,
    SaysNothingOfCapacity,
    SplitsGangs,
    TakesAnyOffersForAToken,
    TakesQuotaForCapacityAnywhere,
)
from tests.contract.broken_machines import (
    BillsForEver,
    BillsTheUnknown,
    ClassifiesNothing,
    CutsNetworks,
    EndsAll,
    EndsOnlyItsOwn,
    EndsOnlyOnce,
    FindsOnlyTheLiving,
    ForgetsTheEnded,
    HasNoPast,
    HasNoPrice,
    HidesAllForOneUnknown,
    IsSlow,
    KeepsWhatIsNotRenewed,
    LeavesNetworks,
    ListsOthers,
    ListsTheEnded,
    LosesTags,
    MetersNothing,
    NeverEnds,
    NeverRuns,
    NotesNothing,
    OffersTwice,
    RaisesForTheUnknown,
    RenewsAll,
    RenewsNothing,
    RenewsTheEnded,
    ReplacesAnyClaim,
    RoundsItsBill,
    SaysEndedBeforeShown,
    SaysFailed,
    ShowsNothing,
)
from tests.contract.sound import Sound
from tests.contract.test_fake import FakeContract

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
