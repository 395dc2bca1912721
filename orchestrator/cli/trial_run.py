"""The trial run that `submit` offers: whether to make it, and its result."""

from typing import TYPE_CHECKING

from orchestrator.cli.output import Output

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.model import JobSpec
    from orchestrator.services.views import PlanView, Trial


def trial_run_here(client: "Client", out: Output, spec: "JobSpec", plan: "PlanView", *, yes: bool) -> "Trial | None":
    """The result of profiling a job of unknown speed on this machine; None if its speed is known or the user
    declined."""
    from orchestrator.cli.render.text import number
    from orchestrator.services.speed.trial import TIMEOUT_S, speed_unknown, unfit
    from orchestrator.services.views import Trial

    if not speed_unknown(plan) or not (yes or out.can_ask):
        return None
    if why := unfit(spec):
        out.note(f"the speed of {spec.name} is unknown, and submit does not profile it: {why}")
        return Trial(False, why)
    bounds = f"a few steps on this machine, {TIMEOUT_S:g} s at most"
    if yes:
        out.note(f"profiling {spec.name} first: {bounds} (skip it with --no-profile)")
    else:
        out.note(f"the speed of {spec.name} is unknown: the plan shows no cost and no finish time.")
        if not out.confirm(f"Profile it first ({bounds})?"):
            return None
    tried = client.speed.try_here(spec)
    if tried.measured:
        out.note(f"measured: {number(tried.step_wall_s)} s per step here, at {tried.precision}; its plan uses that")
    elif tried.failed:
        out.note(f"not measured: the program failed here: {tried.why}; it may fail in the same way on a rented machine")
    else:
        out.note(f"not measured: {tried.why}; if it records steps, it is measured in its first minutes on a machine")
    return tried
