"""`plan` and `submit` of a group file."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.invocation import current
from orchestrator.cli.output import Format, Output
from orchestrator.errors import InfeasibleError, PartialFailure, UsageError

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.model import GroupSpec


def require_alone(file: Path, files: Sequence[Path], of_jobs: Sequence[str]) -> None:
    """Raises UsageError if a group file is planned together with other `files` or with options `of_jobs`."""
    group = shlex.quote(str(file))
    if len(files) > 1:
        hint = f"plan it by itself: tradewind plan {group}"
        raise UsageError(f"{file} is a group file, which is planned without other files", hint=hint)
    if of_jobs:
        options = f"{of_jobs[0]} is an option" if len(of_jobs) == 1 else f"{' and '.join(of_jobs)} are options"
        hint = f"to see the reasons: tradewind plan {group} --why; to act on its plan: tradewind submit {group}"
        if "-o" in of_jobs:
            hint = f"to save its plan as JSON, use --output json; to act on it: tradewind submit {group}"
        raise UsageError(f"{file} is a group file, and {options} for jobs only", hint=hint)


def plan_group(client: "Client", out: Output, file: Path, *, why: bool, what_if: Sequence[str]) -> None:
    """Show the joint plan; with `why`, first the decision for each job."""
    if why and out.format is Format.JSON:
        raise UsageError(
            "the JSON document of a group's plan has no reasons",
            hint="omit --why, or omit --output json to see the reasons",
        )
    spec = client.groups.load(file)
    if why:
        out.name_no_job_file()
        out.data(_each_alone(spec))
        out.show(client.groups.decisions(spec))
    with _naming(file, why=why):
        out.show(client.groups.plan(spec, what_if=what_if))


def _each_alone(spec: "GroupSpec") -> str:
    """The heading above the decisions for each job."""
    budget = "" if spec.budget_nano_usd is None else ", without the budget of the group"
    order = ", as if it could start now" if any(each.after for each in spec.jobs) else ""
    return f"each job alone{budget}{order}:"


@contextmanager
def _naming(file: Path, *, why: bool) -> Iterator[None]:
    """Hints name the group file; if the reasons were already shown (`why`), hints do not point to them."""
    from orchestrator.services.groups.question import SEE_WHY

    try:
        yield
    except InfeasibleError as error:
        error.hint = error.hint.replace(SEE_WHY, "" if why else SEE_WHY.replace("GROUP.yaml", shlex.quote(str(file))))
        raise


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
    why: bool,
) -> None:
    """Show the joint plan, ask, and submit all jobs or none; with `why`, also show the decision for each job."""
    from orchestrator.services.jobs.code import remedy
    from orchestrator.services.secrets.submission import require_secrets

    before = client.groups.submitted(file, token) if token is not None and not dry_run else None
    if before is None:
        if dry_run:
            plan_group(client, out, file, why=why, what_if=())
            return
        spec = client.groups.load(file)
        for each in spec.jobs:
            require_secrets(each.spec)
        shown = out.format is Format.TABLE or (out.can_ask and not yes)
        if shown and why:
            out.name_no_job_file()
            out.note(_each_alone(spec))
            out.review(client.groups.decisions(spec))
        with _naming(file, why=shown and why):
            plan = client.groups.plan(spec)
        if shown:
            out.review(plan)
        else:
            for caution in plan.cautions:
                out.warn(caution)
        if not yes and not out.confirm(
            "Submit this job?" if len(spec.jobs) == 1 else f"Submit these {len(spec.jobs)} jobs?"
        ):
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
            client.control_plane.up(progress=out.note, warn=out.warn)
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
