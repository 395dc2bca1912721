"""The question of a group's joint plan; where no offer fits a job, with a remedy in the words of group files."""

from __future__ import annotations

from orchestrator.engine.inputs.snapshot import Inputs, limits
from orchestrator.errors import InfeasibleError
from orchestrator.installation import Installation
from orchestrator.market import Market
from orchestrator.policy import Demand, prospects
from orchestrator.policy.groups.planning import Asked, asked


def question(installation: Installation, seen: Inputs, market: Market) -> Asked:
    """What the joint plan of these jobs is about. Raises InfeasibleError, naming the job, as `asked` does."""
    bounds = limits(installation.config)

    def ask(*demands: Demand) -> Asked:
        return asked(demands, market, seen.perf, seen.running, limits=bounds)

    try:
        return ask(*seen.demands)
    except InfeasibleError:
        for demand in seen.demands:
            try:
                ask(demand)
            except InfeasibleError as error:
                if prospects(demand, market, seen.perf, limits=bounds)[0]:
                    raise
                # A job of a group may have no file of its own, so there may be none to plan alone.
                hint = f"see why: tradewind plan GROUP.yaml --why; then relax what {demand.job.name} asks for"
                raise InfeasibleError(str(error), hint=hint) from error
        raise
