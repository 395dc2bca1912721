"""Settings, doctor and Tradewind itself as text."""

from __future__ import annotations

from orchestrator.cli.render.text import Paint, clean, instant, table
from orchestrator.jobfile.convert.task_file import Conversion
from orchestrator.services.store.views import StoreDiagnosis
from orchestrator.services.views import Accepted, ControlPlaneView, Diagnosis, SettingList, Version


def accepted(view: Accepted, paint: Paint) -> str:
    return paint(clean(view.message), "bold")


def conversion(view: Conversion, _paint: Paint) -> str:
    return view.text.rstrip("\n")


def control_plane(view: ControlPlaneView, paint: Paint) -> str:
    if not view.running:
        return "no control plane runs here"
    since = f", since {instant(view.since_ms)}" if view.since_ms is not None else ""
    return f"the control plane runs: {paint(f'process {view.pid} on {view.host}', 'bold')}{since}"


def settings(view: SettingList, paint: Paint) -> str:
    rows = [(setting.key, setting.value, setting.origin) for setting in view.settings]
    return table(("setting", "value", "from"), rows, paint)


def diagnosis(view: Diagnosis | StoreDiagnosis, paint: Paint) -> str:
    rows = [(check.state, check.name, check.found) for check in view.checks]
    lines = table(("", "", ""), rows, paint, state=0).splitlines()
    shown = []
    for check, line in zip(view.checks, lines, strict=True):
        shown.append(line)
        if check.fix:
            shown.append(f"      fix: {clean(check.fix)}")
    return "\n".join(shown)


def version(view: Version, paint: Paint) -> str:
    return f"tradewind {paint(view.version, 'bold')}, Python {view.python}, {view.platform}"
