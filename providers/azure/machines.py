"""The machines in a resource group: their state according to Azure and to their records, and their end.

Azure bills a machine that has shut down by itself until it is deleted, and keeps a machine that could not be created.
Any look-up here deletes such a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from email.utils import parsedate_to_datetime

from providers.azure import rows
from providers.azure.calls import INSTALL
from providers.azure.codes import ABSENT
from providers.azure.operations import Accepted
from providers.azure.records import BEGAN, ENDED, OFFER, Record, Records
from providers.azure.session import ONCE, Connections, error_code, rows_of
from providers.azure.settings import Settings
from providers.clock import Clock
from providers.instance import EndReason, Instance
from providers.offer import OfferId

MOST_AT_ONCE = 8
LISTING_LAG_S = 120.0
FORGET_S = 2 * 3600.0
"""How long the record of an ended machine is kept at least."""


class Machines:
    """Methods raise azure.core's exceptions."""

    def __init__(self, settings: Settings, connections: Connections, clock: Clock) -> None:
        self._settings, self._connections, self._clock = settings, connections, clock
        self.records = Records(connections, settings.group)
        self._noted: set[str] = set()  # names of machines whose creation time is recorded

    def get(self, name: str) -> rows.Row | None:
        """The row of a machine; None if it does not exist."""
        machines = self._connections.compute.virtual_machines
        try:
            found = machines.get(self._settings.resource_group, name, expand="instanceView")
        except Exception as error:
            if error_code(error) in ABSENT:
                return None
            raise
        return dict(found.as_dict())

    def look(self, region: str, name: str) -> Instance | None:
        """A machine as it is, or as it ended; None if nothing is known about it."""
        vm = self.get(name)
        if vm is None:
            return self._gone(region, name)
        if rows.region_of(vm) != region or rows.TOKEN not in rows.tags_of(vm):
            return None
        if name not in self._noted and (record := self.records.get(name)) is not None:
            self.note_beginning(record, vm)
        if (reason := rows.over(vm, self._clock.now_ms())) is not None:
            self.end(name, reason)
            vm = {**vm, "properties": {**vm["properties"], "provisioningState": "Deleting"}}
        else:
            self._note_deletion(name, vm)
        return rows.instance(vm)

    def look_at_all(self, places: Sequence[tuple[str, str]]) -> list[Instance | None]:
        """`look` at several machines, each by (region, name)."""
        if len(places) < 2:
            return [self.look(*place) for place in places]
        with ThreadPoolExecutor(min(len(places), MOST_AT_ONCE)) as pool:
            return list(pool.map(lambda place: self.look(*place), places))

    def owned(self, install: str) -> list[Instance]:
        """The living machines of an installation; deletes records that are no longer needed."""
        machines = self._connections.compute.virtual_machines
        try:
            found = rows_of("ARM's list of machines", machines.list(self._settings.resource_group))
            listed = [dict(each.as_dict()) for each in found]
            records = [each for each in self.records.all() if each.tags.get(INSTALL) == install]
        except Exception as error:
            if error_code(error) in ABSENT:  # the resource group
                return []
            raise
        ours = [
            (rows.region_of(vm), str(vm["name"]))
            for vm in listed
            if rows.tags_of(vm).get(INSTALL) == install and rows.TOKEN in rows.tags_of(vm)
        ]
        self._tidy(records, {name for _, name in ours})
        return [each for each in self.look_at_all(ours) if each is not None and each.alive]

    def end(self, name: str, reason: EndReason) -> None:
        """Delete a machine with its disk and address, and record its end. Succeeds if there is no machine; if no end
        was recorded yet, it counts as ended now, because the answer to an earlier call may have been lost."""
        accepted = Accepted()
        machines = self._connections.compute.virtual_machines
        try:
            machines.begin_delete(self._settings.resource_group, name, force_deletion=True, polling=accepted, **ONCE)
        except Exception as error:
            if error_code(error) in ABSENT:
                return
            raise
        record = self.records.get(name)
        if record is not None and record.ended is None:
            ended_ms = _date_ms(accepted.headers, self._clock.now_ms())
            if (vm := self.get(name)) is not None:  # Azure may have been deleting it already
                ended_ms = min(ended_ms, rows.deleting_since_ms(vm, ended_ms) or ended_ms)
            self._note_end(record, reason, ended_ms)

    def forget(self, install: str) -> None:
        """Remove the records of an installation that has no machine up."""
        for record in list(self.records.all()):
            if record.tags.get(INSTALL) == install:
                self.records.remove(record.name)

    def _gone(self, region: str, name: str) -> Instance | None:
        """A machine that Azure does not know, or no longer knows."""
        record = self.records.get(name)
        if record is None or record.region != region:
            return None
        if record.ended is not None:
            return record.instance(*record.ended)
        now_ms = self._clock.now_ms()
        if now_ms - record.asked_ms < LISTING_LAG_S * 1000 and BEGAN not in record.tags:
            return None  # it may yet be created
        reason = _not_ours(record)
        self._note_end(record, reason, now_ms // 1000 * 1000)
        return record.instance(reason, now_ms // 1000 * 1000)

    def _note_deletion(self, name: str, vm: rows.Row) -> None:
        """Record since when Azure has been deleting a machine by itself: Azure reports it only until the machine is
        gone."""
        ended_ms = rows.deleting_since_ms(vm, self._clock.now_ms())
        if ended_ms is not None and (record := self.records.get(name)) is not None and record.ended is None:
            self._note_end(record, _not_ours(record), ended_ms)

    def note_beginning(self, record: Record, vm: rows.Row) -> None:
        """Record when a machine was created: Azure does not report it after the machine is gone."""
        if BEGAN not in record.tags:
            self.records.note(record.name, **{BEGAN: str(rows.began_ms(vm))})
        self._noted.add(record.name)

    def _note_end(self, record: Record, reason: EndReason, ended_ms: int) -> None:
        self.records.note(record.name, **{ENDED: f"{reason} {ended_ms}"})

    def _tidy(self, records: Sequence[Record], alive: set[str]) -> None:
        before_ms = self._clock.now_ms() - FORGET_S * 1000
        for record in records:
            last_ms = record.ended[1] if record.ended is not None else record.asked_ms
            if record.name not in alive and last_ms < before_ms:
                if record.ended is None and self.look(record.region, record.name) is not None:
                    continue  # its end is recorded from now on
                self.records.remove(record.name)


def _not_ours(record: Record) -> EndReason:
    """Why a machine ended, if this installation did not end it."""
    taken = BEGAN in record.tags and OfferId.parse(record.tags[OFFER]).spot
    return EndReason.PREEMPTED if taken else EndReason.FAILED


def _date_ms(headers: Mapping[str, str], otherwise_ms: int) -> int:
    """Azure's own time of an answer, in whole seconds."""
    try:
        return int(parsedate_to_datetime(headers["date"]).replace(tzinfo=UTC).timestamp()) * 1000
    except (KeyError, TypeError, ValueError):
        return otherwise_ms // 1000 * 1000
