"""Offers, settings, doctor and Tradewind itself as text."""

from __future__ import annotations

from orchestrator.cli.render.text import Paint, blocks, clean, instant, note_simulated, rate, span, table
from orchestrator.services.store_views import StoreDiagnosis
from orchestrator.services.views import (
    Accepted,
    ControlPlaneView,
    Diagnosis,
    OfferList,
    SettingList,
    Version,
)


def accepted(view: Accepted, paint: Paint) -> str:
    return paint(clean(view.message), "bold")


def control_plane(view: ControlPlaneView, paint: Paint) -> str:
    if not view.running:
        return "no control plane runs here"
    since = f", since {instant(view.since_ms)}" if view.since_ms is not None else ""
    return f"the control plane runs: {paint(f'process {view.pid} on {view.host}', 'bold')}{since}"


def offers(view: OfferList, paint: Paint) -> str:
    if not view.offers:
        return "no offer matches"
    rows = [
        (
            offer.id,
            "cpu" if offer.gpu is None else f"{offer.gpu_count}x{offer.gpu}",
            str(offer.vcpu),
            f"{offer.memory_bytes / 1e9:.0f} GB",
            rate(offer.nano_usd_per_hour),
            span(offer.age_s),
            offer.source,
        )
        for offer in view.offers
    ]
    head = ("offer", "gpu", "vcpu", "memory", "price", "asked", "source")
    return blocks(table(head, rows, paint, right=(2, 3, 4, 5)), paint(note_simulated(view.simulated), "dim"))


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
