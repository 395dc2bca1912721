"""Jobs that no offer fits, in a joint plan."""

from __future__ import annotations

import pytest

from orchestrator.errors import InfeasibleError
from orchestrator.model import Where
from orchestrator.policy import Demand
from orchestrator.policy.groups.planning import asked
from orchestrator.services.groups.question import SEE_WHY
from tests.unit.policy.conftest import DecisionCase


def test_the_hint_names_the_file_of_the_group_and_no_file_that_may_not_exist(case: DecisionCase) -> None:
    """A job of a group may have no file of its own, or one with another name."""
    case.offer("here", 1.0)
    demand = Demand(case.job("inline", where=Where(regions=("nowhere-9",))), 100)
    with pytest.raises(InfeasibleError, match=r"^inline: no offer fits it now$") as refused:
        asked([demand], case.market(), case.perf())
    assert refused.value.hint == f"{SEE_WHY}relax its job file"
