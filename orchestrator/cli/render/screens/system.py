"""Settings, doctor and Tradewind itself as text."""

from __future__ import annotations

from orchestrator.cli.render.table import Column, table
from orchestrator.cli.render.text import Screen, clean, instant
from orchestrator.jobfile.convert.task_file import Conversion
from orchestrator.services.control_plane.views import ControlPlaneView
from orchestrator.services.store.views import StoreDiagnosis
from orchestrator.services.views import Accepted, CloudPolicy, Diagnosis, NetworkList, SettingList, Version


def accepted(view: Accepted, screen: Screen) -> str:
    """What was accepted."""
    return screen(clean(view.message), "bold")


def conversion(view: Conversion, _screen: Screen) -> str:
    """The job file made of a task file."""
    return view.text.rstrip("\n")


def control_plane(view: ControlPlaneView, screen: Screen) -> str:
    """Whether a control plane runs."""
    if not view.running:
        return "the control plane has ended" if view.ended else "no control plane is running here"
    since = f", since {instant(view.since_ms)}" if view.since_ms is not None else ""
    state = "is stopped" if view.stopped else "runs"
    return f"the control plane {state}: {screen(f'process {view.pid} on {view.host}', 'bold')}{since}"


def networks(view: NetworkList, screen: Screen) -> str:
    """The networks and buckets of each cloud and region."""
    if not any(network.parts for network in view.networks) and not view.buckets:
        return "there are no networks of this installation"
    columns = (Column("", state=True), Column("cloud"), Column("region"), Column("", text=True))
    rows = []
    for network in view.networks:
        found = ", ".join(f"{part.kind} {part.id}" for part in network.parts) or "nothing"
        lacking = f"; missing: {', '.join(network.missing)}" if network.missing else ""
        state = "ok" if network.ready else "warn"
        rows.append((state, network.provider, network.region, found + lacking))
    for bucket in view.buckets:
        whose = "created by Tradewind" if bucket.own else "not created by Tradewind: used unchanged"
        lacking = f"; missing: {', '.join(bucket.missing)}" if bucket.missing else ""
        state = "warn" if bucket.missing else "ok"
        rows.append((state, bucket.provider, bucket.region, f"bucket {bucket.url}, {whose}{lacking}"))
    return table(columns, rows, screen)


def settings(view: SettingList, screen: Screen) -> str:
    """Every setting with its value and origin."""
    rows = [(setting.key, setting.value, setting.origin) for setting in view.settings]
    return table((Column("setting"), Column("value", text=True), Column("from")), rows, screen)


def diagnosis(view: Diagnosis | StoreDiagnosis, screen: Screen) -> str:
    """A line per check, and below it the remedy."""
    columns = (Column("", state=True), Column(""), Column("", text=True))
    rows: list[tuple[str, str, str]] = []
    for check in view.checks:
        rows.append((check.state, check.name, check.found))
        if check.fix:
            rows.append(("", "", f"fix: {check.fix}"))
    return table(columns, rows, screen)


def policy(view: CloudPolicy, _screen: Screen) -> str:
    """A policy in the format of its cloud."""
    return view.text


def version(view: Version, screen: Screen) -> str:
    """The version."""
    return f"tradewind {screen(view.version, 'bold')}, Python {view.python}, {view.platform}"
