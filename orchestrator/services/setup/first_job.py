"""The cost of a first job: the plan for a job that trains for an hour on one rentable GPU."""

from __future__ import annotations

import tempfile
from pathlib import Path

from orchestrator.errors import InfeasibleError, ProviderFailure, StoreError
from orchestrator.installation import Installation
from orchestrator.jobfile import job_from_mapping
from orchestrator.services.jobs.plan import freshen, preview
from orchestrator.services.setup.views import FirstJob

STEPS = 3600
_PROGRAM = "def main() -> None:\n    pass\n"


def first_job(installation: Installation) -> FirstJob:
    """The plan's figures, or the reason why there are none."""
    try:
        return _planned(installation)
    except (InfeasibleError, ProviderFailure, StoreError) as error:
        return FirstJob(why_not=str(error))


def _planned(installation: Installation) -> FirstJob:
    freshen(installation)
    with installation.store.read() as tx:
        gpus = sorted({offer.gpu for offer in tx.offers(installation.providers) if offer.gpu is not None})
        errors = [poll.error for name in installation.providers for poll in tx.polls(name, 1) if poll.error is not None]
    if not gpus:
        why = "; ".join(dict.fromkeys(errors)) or "no rentable machine has a GPU"
        return FirstJob(why_not=why)
    described = {
        "name": "first-job",
        "train": {"entry": "first_job:main", "steps": STEPS},
        "resources": {"gpu": gpus},
        "expected": {"gpu": gpus[0], "steps_per_s": STEPS / 3600},
    }
    with tempfile.TemporaryDirectory() as folder:  # a job file must name an existing program
        Path(folder, "first_job.py").write_text(_PROGRAM)
        view = preview(installation, [job_from_mapping(described, folder)])
    (decision,) = view.decisions
    chosen = next((each for each in decision.choices if each.role == "choose"), None)
    if chosen is None:
        return FirstJob(why_not=decision.reason)
    return FirstJob(
        gpu=gpus[0],
        offer_id=chosen.offer_id,
        cost_nano_usd=chosen.cost_nano_usd,
        cost_low_nano_usd=chosen.cost_low_nano_usd,
        cost_high_nano_usd=chosen.cost_high_nano_usd,
        duration_s=chosen.duration_s,
        simulated=view.simulated,
    )
