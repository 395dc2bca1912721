"""The latest report of a machine's agent, as far as it can be shown.

Reports are not trusted: only checked numbers, an agent's boot, and words from fixed lists are passed on. Ages are by
wall clocks, which may differ: they are only shown to people, and no decision depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from orchestrator.engine.machines.reports import report_of
from orchestrator.installation import Installation
from orchestrator.nodes.channel import Channel, Garbled, places
from orchestrator.nodes.messages import NodeReport
from orchestrator.services.nodes.views import Heard
from trainers import checked_json
from trainers.errors import MalformedMessage
from trainers.objects.base import ObjectStore

_BOOT = re.compile("[0-9a-f]{1,64}")
_OF = "the report"


def heard(installation: Installation, store: ObjectStore, token: str, run_id: str) -> Heard | None:
    """The latest report of the machine with this launch token, and what it says about this run; None if there is no
    report yet. Raises ObjectStoreError."""
    channel = Channel(store, token)
    written = store.head(channel.report_key)  # before the report is read, so that it is never shown as too new
    if written is None:
        return None
    try:
        report = channel.report()
    except Garbled:
        report = None
    else:
        if report is None:
            return None
    age_s = max(0, installation.outside_clock.now_ms() - written.modified_ms) / 1000
    if report is None or not _sound(report):
        return Heard(age_s, valid=False)
    known = Heard(age_s, True, report.boot, report.beat)
    if report.run_id != run_id or report.said is None:
        return known
    return _with_words(known, run_id, report.said, report.said_ago_s)


def rank_of(store: ObjectStore, token: str, nodes: int, instance_id: str) -> int | None:
    """The rank of one of the `nodes` machines of a launch, as published by its agent; None if not published. Raises
    ObjectStoreError."""
    if nodes == 1:
        return 0
    for rank, place in enumerate(places(token, nodes)):
        try:
            facts = Channel(store, place).facts()
        except Garbled:
            continue
        if facts is not None and facts.instance == instance_id:
            return rank
    return None


def _sound(report: NodeReport) -> bool:
    try:
        checked_json.fitting({"beat": report.beat}, {"beat": checked_json.count}, _OF)
    except MalformedMessage:
        return False
    return _BOOT.fullmatch(report.boot) is not None


def _with_words(known: Heard, run_id: str, said: Mapping[str, object], ago_s: float) -> Heard:
    """The report with the trainer's message, which it wrote `ago_s` (at least 0) before the report."""
    report = report_of(run_id, {**said, "silent_s": known.age_wall_s + max(0.0, ago_s)})
    if report.state == "malformed":
        return replace(known, said="malformed")
    return replace(known, said=report.state, step=report.step, said_age_wall_s=report.silent_s)
