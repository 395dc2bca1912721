"""What `submit` does with a group file."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.invocation import current
from orchestrator.cli.output import Format, Output
from orchestrator.errors import PartialFailure

if TYPE_CHECKING:
    from orchestrator.client import Client


def submit_group(
    client: "Client",
    out: Output,
    file: Path,
    *,
    yes: bool,
    accept_risk: bool,
    dry_run: bool,
    wait: bool,
    token: str | None,
) -> None:
    """Show the joint plan, ask, and submit all jobs or none."""
    from orchestrator.services.jobs.code import remedy

    before = client.groups.submitted(file, token) if token is not None and not dry_run else None
    if before is None:
        spec = client.groups.load(file)
        plan = client.groups.plan(spec)
        if dry_run:
            out.show(plan)
            return
        if out.format is Format.TABLE or (out.can_ask and not yes):
            out.review(plan)
        if not yes and not out.confirm(f"Submit these {len(spec.jobs)} jobs?"):
            out.note("nothing was submitted")
            raise typer.Exit(0)
        if yes:
            for each in spec.jobs:
                code = client.jobs.code(each.spec)
                if code is not None and code.concern is not None:
                    out.warn(code.concern, remedy(code.folder))
        group = client.groups.submit(spec, token=token, accept_code=yes, accept_risk=accept_risk or not yes)
        out.note(f"submitted {group.name} as {group.id}")
    else:
        group = before
        out.note(f"{group.name} was already submitted with this token, as {group.id}")
    current().is_stored(f"{group.name} is submitted as {group.id}")
    try:
        if not client.control_plane.status().running:
            out.note("starting the control plane in the background; to stop it: tradewind down")
            client.control_plane.up(progress=out.note)
        if wait:
            for job in group.jobs:
                client.jobs.wait(job.id)
            group = client.groups.get(group.id)
    except KeyboardInterrupt:
        out.note(f"\n{group.name} is submitted and continues: tradewind queue --group {group.name}")
        raise
    except Exception as error:
        current().only_a_warning(error)
        out.show(group)
        return
    out.show(group)
    if wait:
        failed = [job.name for job in group.jobs if job.state != "finished"]
        if failed:
            raise PartialFailure(
                f"not finished: {', '.join(failed[:8])}", hint=f"tradewind queue --all --group {group.name}"
            )
        return
    out.note(f"watch them: tradewind queue --group {group.name}")
