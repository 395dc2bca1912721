"""What is said about ways out of a conflict, and how errors carry it."""

from __future__ import annotations

import pytest

from orchestrator.cli.render.text import fitted
from orchestrator.errors import InfeasibleError
from orchestrator.policy.groups.remedies import Later, Raised, Remedies
from orchestrator.services.groups.relaxing import with_remedies
from providers.base import Covered, Quota

ERROR = InfeasibleError("not all deadlines can be met", hint="give later deadlines")


def name(family: str = "P", unit: str = "machines", *, owned: bool = False) -> tuple[str, Quota]:
    return "aws", Quota(f"{family} instances", "us-east-1", 8, 8, Covered(unit), owned=owned)  # type: ignore[arg-type]


def hint(found: Remedies) -> list[str]:
    text = with_remedies(ERROR, found).hint
    assert max(map(len, fitted(f"hint: {text}", 80).splitlines())) <= 80
    return text.splitlines()


def test_without_any_way_out_the_error_stays_as_it_is() -> None:
    assert with_remedies(ERROR, Remedies()) is ERROR


def test_ways_are_listed_with_what_they_cost_the_cheapest_quota_first() -> None:
    later = Later(("a", "b"), True, 2.4 * 3600, 31.2)
    raised = Raised(name(unit="vcpus"), 96, 29.1), Raised(name("G"), 12, 27.0)
    assert hint(Remedies((later,), raised)) == [
        "each of these changes alone is enough (estimates, for the whole group):",
        "  all deadlines 2.4 h later: about $31.20 in total",
        "  12 instead of 8 G instances in aws/us-east-1: about $27.00 in total",
        "  96 instead of 8 vCPUs of P instances in aws/us-east-1: about $29.10 in total",
        "to see the plan with another quota: --what-if quota.aws.us-east-1.G_instances=12",
    ]


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (Later(("a",), True, 45.0, 1.5), "the deadline of a 45 s later: about $1.50 in total"),
        (Later(("a", "b"), False, 1800.0, 1.5), "the deadlines of a, b 30 min later: about $1.50 in total"),
        (
            Later(("a", "b", "c", "d", "e"), False, 3.5 * 86_400, 1.5),
            "the deadlines of a, b, c and 2 other jobs 3.5 days later: about $1.50 in total",
        ),
    ],
)
def test_whose_deadlines_and_how_much_later(later: Later, words: str) -> None:
    assert hint(Remedies((later,))) == ["this change is enough (estimates, for the whole group):", f"  {words}"]


def test_an_option_is_quoted_for_a_shell() -> None:
    raised = Raised(("gcp", Quota("GPUs (all regions)", "global", 8, 8, Covered("gpus"))), 16, 29.1)
    assert hint(Remedies(raised=(raised,)))[-1].endswith(" --what-if 'quota.gcp.global.GPUs_(all_regions)=16'")


def test_machines_that_are_owned_are_no_quota() -> None:
    assert "  10 instead of 8 machines on us-east-1: about $1.00 in total" in hint(
        Remedies(raised=(Raised(name(owned=True), 10, 1.0),))
    )


def test_what_is_not_enough_and_what_is_not_known_is_said() -> None:
    lines = hint(
        Remedies(not_enough=(name(), name("G")), unknown=tuple(name(each) for each in "ABCD"), delay_unknown=True)
    )
    assert lines == [
        "not enough by itself: more P instances in aws/us-east-1, G instances in aws/us-east-1",
        "not computed in time: later deadlines, more A instances in aws/us-east-1, "
        "more B instances in aws/us-east-1 and 2 other changes",
        "to see the plan with another quota: --what-if quota.CLOUD.SCOPE.NAME=LIMIT",
    ]


def test_programs_read_the_same_from_the_error() -> None:
    later = Later(("a",), True, 45.0, 1.5)
    error = with_remedies(
        ERROR, Remedies((later,), (Raised(name(), 12, 2.0),), (name("G"),), (name("F"),), delay_unknown=False)
    )
    assert str(error) == str(ERROR)
    assert [(each.enough, each.jobs, each.quota, each.delay_s, each.limit) for each in error.relaxations] == [
        (True, ("a",), "", 45.0, None),
        (True, (), "quota.aws.us-east-1.P_instances", None, 12),
        (False, (), "quota.aws.us-east-1.G_instances", None, None),
        (None, (), "quota.aws.us-east-1.F_instances", None, None),
    ]
    assert [each.cost_nano_usd for each in error.relaxations] == [1_500_000_000, 2_000_000_000, None, None]
