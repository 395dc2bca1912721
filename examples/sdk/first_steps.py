"""The SDK in one file: plan a job, submit it, read prices, events and the report, from one thread and from several.

    python examples/sdk/first_steps.py [STATE_FOLDER]

It needs no account, no GPU and no Ray. Prices are from the simulated market of this machine. No control plane runs, so
the job is submitted and cancelled without being started.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator import Caller, Client, NotFoundError, SpecError, pages

EXAMPLES = Path(__file__).resolve().parent.parent
JOB = {  # the fields of a job file; examples/gpt.yaml is the same job as a file
    "name": "gpt",
    "train": {"entry": "gpt:main", "workdir": str(EXAMPLES), "steps": 350},
    "resources": {"gpu": ["SIM-S", "SIM-L"]},
    "expected": {"gpu": "SIM-S", "steps_per_s": 0.2},
}


def main(folder: Path) -> None:
    with Client(state_dir=folder / "state", caller=Caller("ann", project="demo")) as client:
        # Plan: where would the job run, and what would it cost? Nothing is started.
        plan = client.plans.create(JOB)
        (decision,) = plan.decisions
        assert decision.offer_id is not None
        assert decision.cost_nano_usd is not None
        print(f"plan      {decision.offer_id} for {decision.cost_nano_usd / 1e9:.4f} USD, of {decision.count} offers")

        # The same question for several jobs, from several threads.
        with ThreadPoolExecutor() as pool:
            plans = pool.map(client.plans.create, [JOB | {"objective": goal} for goal in ("cheapest", "fastest")])
        for each in plans:
            print(f"{each.decisions[0].objective:9} {each.decisions[0].offer_id}")

        # Submit: the token makes it safe to retry. Each run of this script uses a different token.
        job = client.jobs.submit(plan, token=plan.id)
        assert client.jobs.submit(JOB, token=plan.id).id == job.id
        print(f"submitted {job.name} of {job.owner} in project {job.project}: {job.state}")

        # Prices of the last day, and offers ranked for the job.
        (series,) = client.prices.history(decision.offer_id, since="24h").series
        prices = [nano_usd_per_hour / 1e9 for _, _, nano_usd_per_hour in series.points]
        print(f"prices    {min(prices):.4f} to {max(prices):.4f} USD per hour in {len(prices)} changes")
        for offer in client.offers.list(cloud=["local"], work=JOB, limit=3).offers:
            print(f"offer     {offer.id}")

        # Commands, and the audit trail, page by page.
        client.jobs.set_budget(job.id, "2.50")
        client.jobs.cancel(job.id)
        for page in pages(client.events.list, job.id, limit=50):
            for event in page.events:
                print(f"event     {event.kind} by {event.actor}")

        # The report: paid + saved = what it would have cost.
        report = client.reports.get(job.id)
        client.reports.write_html(report, folder / "report.html")
        entries = client.ledger.entries(job.id).entries
        print(f"report    {report.paid_nano_usd / 1e9:.2f} USD paid in {len(entries)} ledger entries")

        # Errors have a hint; errors of a job file name every wrong field.
        try:
            client.jobs.get("nobody")
        except NotFoundError as error:
            print(f"error     {error} ({error.hint})")
        try:
            client.plans.create(JOB | {"budget": "a lot", "deadline": "soon"})
        except SpecError as error:
            print(f"fields    {', '.join(problem.field for problem in error.problems)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
