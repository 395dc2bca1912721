"""Checks of the running system: store, clock, control plane, machines, prices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from orchestrator.config.store_url import file_of_url
from orchestrator.engine.machines import claims
from orchestrator.formats.readable import iso
from orchestrator.installation import Installation
from orchestrator.services.checkpoints.elsewhere import elsewhere
from orchestrator.services.control_plane import project_limits, unmanaged
from orchestrator.services.control_plane.presence import control_plane as find_control_plane
from orchestrator.services.control_plane.presence import disk_full
from orchestrator.services.views import Check
from providers.base import ExaminesHosts, NeedsNetworks
from providers.errors import ProviderError

MOST_SHOWN = 3
AT_ONCE = 16
FAULT_IS_NEWS_WALL_S = 2 * 3600.0  # a lasting fault is reported every hour (engine.compartment)
STALE_AFTER_WALL_S = 600.0  # if the last poll is older, the control plane is not collecting


def store(installation: Installation) -> Check:
    """The store is writable. Its schema is current, or it could not have been opened."""
    with installation.store.write() as tx:
        jobs = tx.count_jobs()
    where = installation.config.store_url.rpartition("@")[2]
    file = file_of_url(installation.config.store_url)
    if file is not None and disk_full(file.parent):
        fix = f"free some space at {file.parent}: until then jobs are not watched or moved, and costs are not booked"
        return Check("store", "fail", f"{where}: the disk is full, so nothing can be stored", fix)
    return Check(
        "store", "ok", f"{where}: schema current, writable, {jobs} job(s), install {installation.store.install_id}"
    )


def clock(installation: Installation) -> Check:
    """Market time and its speed."""
    now = iso(installation.clock.now_ms())
    if installation.clock.factor == 1:
        return Check("clock", "ok", f"{now}, wall time")
    return Check(
        "clock", "ok", f"{now}, simulated market time, {installation.clock.factor:g} times as fast as real time"
    )


def control_plane(installation: Installation) -> Check:
    """Whether a control plane runs, if jobs need one."""
    found = find_control_plane(installation, watch=True)
    if (found.stopped or found.copy_of) and found.unattended is not None:
        why, remedy = found.unattended
        return Check("control plane", "warn", f"{why}: jobs are not watched or moved, and costs are not booked", remedy)
    if found.running:
        since = f", leads since {iso(found.since_ms)}" if found.since_ms is not None else ""
        return Check("control plane", "ok", f"process {found.pid} on {found.host}{since}")
    with installation.store.read() as tx:
        states = [job.state for job in tx.outlines(ended=False) if job.state != "paused"]
    begun = sum(state in ("running", "migrating") for state in states)
    waiting = len(states) - begun
    said = [f"{begun} {'job runs' if begun == 1 else 'jobs run'} unattended"] * (begun > 0)
    said += [f"{waiting} {'job waits' if waiting == 1 else 'jobs wait'} for it"] * (waiting > 0)
    if said:
        return Check("control plane", "warn", f"not running, and {' and '.join(said)}", "tradewind up")
    return Check("control plane", "ok", "not running; `submit` starts it when needed")


def limits_of_projects(installation: Installation) -> Check:
    """Whether projects lost their limits because the control plane was started with another configuration."""
    name = "project limits"
    lost = project_limits.lost(installation)
    if not lost:
        return Check(name, "ok", "the control plane has not lost any")
    return Check(name, "warn", "; ".join(words for words, _ in lost), lost[0][1])


def checkpoints_elsewhere(installation: Installation) -> Check:
    """Whether jobs that have not ended have checkpoints or code in a former `store_root`."""
    name, found = "checkpoints", elsewhere(installation)
    if not found:
        return Check(name, "ok", "no unfinished job has checkpoints in a former store_root")
    return Check(name, "warn", "; ".join(words for words, _ in found), "; ".join(remedy for _, remedy in found))


def quarantine(installation: Installation) -> Check:
    """Jobs in quarantine, because handling them raised an error."""
    with installation.store.read() as tx:
        found = tx.quarantined()
        name = tx.typed_name(found[0].job_id, found[0].name) if found else ""
    if not found:
        return Check("jobs", "ok", "none in quarantine")
    shown = "; ".join(f"{each.name} since {iso(each.at_ms)}: {each.why}" for each in found[:MOST_SHOWN])
    more = f" (and {len(found) - MOST_SHOWN} more)" if len(found) > MOST_SHOWN else ""
    return Check(
        "jobs",
        "fail",
        f"{len(found)} in quarantine: {shown}{more}",
        f"see `tradewind status {name}`; then tradewind resume {name}, or tradewind cancel {name}",
    )


def engine(installation: Installation) -> Check:
    """Errors of the control plane that do not concern a single job."""
    with installation.store.read() as tx:
        reported = tx.events(kinds=("engine.fault",), limit=1, newest_first=True)
    recent_ms = int(FAULT_IS_NEWS_WALL_S * installation.clock.factor * 1000)
    if not reported or reported[0].at_ms < installation.clock.now_ms() - recent_ms:
        return Check("engine", "ok", "no step failed recently")
    found = f"a step failed at {iso(reported[0].at_ms)}: {reported[0].message}"
    return Check("engine", "warn", found, "see the traceback: tradewind events --output json; please report it")


def installation(installation: Installation) -> Check:
    """Whether another copy of this store acts on the installation's machines."""
    claims.check(installation)
    return Check("installation", "ok", f"this store alone acts for {installation.store.install_id}")


def machines(installation: Installation) -> Check:
    """Unmanaged machines: those with this installation's tag that its store did not rent."""
    found = unmanaged.unknown(installation)
    if not found:
        return Check("machines", "ok", "every running machine was rented by this store")
    named = ", ".join(f"{each.id} ({each.offer_id})" for each in found[:MOST_SHOWN])
    return Check(
        "machines",
        "warn",
        f"{len(found)} not rented by this store: {named}{', ...' if len(found) > MOST_SHOWN else ''}",
        f"if no other copy of the store uses it: tradewind reap {found[0].id}",
    )


def hosts(installation: Installation) -> list[Check]:
    """For each host that the user declared, whether a machine can start there. All are asked at the same time."""
    declared = [
        (provider, name)
        for provider in installation.providers.values()
        if isinstance(provider, ExaminesHosts)
        for name in provider.host_names
    ]

    def look(at: tuple[ExaminesHosts, str]) -> Check:
        provider, name = at
        try:
            return Check(f"host {name}", "ok", provider.examine(name))
        except ProviderError as error:
            return Check(f"host {name}", "fail", str(error), error.hint)

    with ThreadPoolExecutor(AT_ONCE, "hosts") as pool:
        return list(pool.map(look, declared))


def networks(installation: Installation, cloud: NeedsNetworks, name: str) -> list[Check]:
    """The networks that machines of a cloud need, by region. Raises ProviderError."""
    checks = []
    for found in cloud.networks(installation.store.install_id):
        what = f"network of {name} in {found.region}"
        if not found.wanted:
            left = f"{len(found.parts)} parts remain, but the region is not configured"
            checks.append(
                Check(what, "warn", left, f"machines cannot use them; to remove all: tradewind down --cloud {name}")
            )
        elif found.missing:
            lacking = "it does not exist" if not found.parts else f"missing: {', '.join(found.missing)}"
            fix = f"create it before machines can be rented there: tradewind up --cloud {name}"
            checks.append(Check(what, "fail", lacking, fix))
        else:
            checks.append(Check(what, "ok", f"{len(found.parts)} parts, all traffic from outside is blocked"))
    return checks


def collected_prices(installation: Installation) -> Check:
    """Sources and regions whose last collection failed or is not trusted."""
    name = "collected prices"
    with installation.store.read() as tx:
        states = [each for each in tx.poll_states() if each.source not in installation.providers]
    if not states:
        return Check(name, "ok", "none are collected")
    wrong = [(each, each.error or each.suspect) for each in states if each.error or each.suspect]
    if not wrong:
        return Check(name, "ok", f"the last collection succeeded for all {len(states)} sources and regions")
    reported = "; ".join(f"{each.source} {each.region or 'all'}: {why}" for each, why in wrong[:MOST_SHOWN])
    more = f" (and {len(wrong) - MOST_SHOWN} more)" if len(wrong) > MOST_SHOWN else ""
    return Check(name, "warn", f"{reported}{more}", "its earlier prices stay in use; see: tradewind prices status")


def prices(installation: Installation, provider: str) -> Check:
    """The age of the provider's last response."""
    name = f"prices of {provider}"
    simulated = " (simulated)" if installation.providers[provider].simulated else ""
    with installation.store.read() as tx:
        polls = tx.polls(provider, 50)
        suspect = next((each.suspect for each in tx.poll_states() if each.source == provider), None)
    good = [poll for poll in polls if poll.error is None]
    if not good:
        why = f": {polls[0].error}" if polls else ""
        return Check(name, "warn", f"no successful request yet{simulated}{why}", "tradewind offers")
    age_s = (installation.clock.now_ms() - good[0].finished_ms) / 1000
    wall_s = age_s / installation.clock.factor
    found = f"{good[0].offers_seen} offers, asked {wall_s:.0f} s ago{simulated}"
    if polls[0].error is not None:
        return Check(name, "warn", f"{found}; since then: {polls[0].error}", "tradewind offers")
    if suspect:
        return Check(
            name,
            "warn",
            f"{found}; the last response {suspect}: earlier prices are used until another response confirms it",
            "tradewind prices status",
        )
    if wall_s > STALE_AFTER_WALL_S and find_control_plane(installation).running:
        return Check(name, "warn", f"{found}: the control plane is not collecting", "tradewind events")
    return Check(name, "ok", found)
