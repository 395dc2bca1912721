"""What `init` set up, as text."""

from __future__ import annotations

from orchestrator.cli.render.screens.system import diagnosis
from orchestrator.cli.render.text import Screen, between, likely
from orchestrator.services.setup.views import FirstJob, SetUp
from orchestrator.services.views import Diagnosis
from providers.money import about_usd


def set_up(view: SetUp, screen: Screen) -> str:
    """The checks, then what a first job would cost and what to do next."""
    job = view.first_job
    lines = [diagnosis(Diagnosis(view.checks), screen), "", *_cost(job)]
    if job.offer_id is not None:
        lines.append("next: tradewind submit JOB.yaml")
    return "\n".join(lines)


def _cost(job: FirstJob) -> list[str]:
    if job.offer_id is None or job.cost_nano_usd is None or job.duration_s is None:
        return [f"the cost of a first job is not known yet: {job.why_not}"]
    enclosed = ""
    if job.cost_low_nano_usd is not None and job.cost_high_nano_usd is not None:
        enclosed = likely(between(about_usd(job.cost_low_nano_usd), about_usd(job.cost_high_nano_usd)))
    note = " (simulated)" if job.simulated else ""
    return [
        f"a first job that needs an hour on one {job.gpu} would cost about {about_usd(job.cost_nano_usd)}{enclosed}",
        f"  in {job.duration_s / 3600:.1f} h on {job.offer_id}{note}",
    ]
