"""Commands from users to the control plane, and the last time of each periodic task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Row, bindparam, delete, select, update

from orchestrator.errors import NotFoundError, UnreadableRowError
from orchestrator.formats.codec import dumps
from orchestrator.store.rows import mapping, record
from orchestrator.store.schema import COMMAND_OPEN, command
from orchestrator.store.schema_base import periodic_task
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Command:
    """A user's command (pause, cancel, migrate, ...), which the control plane executes and closes.

    If its arguments are unreadable, `damage` is the reason, `args` is empty and the command can only be refused.
    """

    id: str
    kind: str
    job_id: str | None
    args: Mapping[str, Any]
    actor: str
    at_ms: int
    damage: str = ""


_COMMAND = [command.c[field.name] for field in fields(Command) if field.name != "damage"]
_OPEN = select(*_COMMAND).where(COMMAND_OPEN).order_by(command.c.seq)
_CLOSE = update(command).where(command.c.id == bindparam("command_id"), COMMAND_OPEN)
_RESULT = select(command.c.result).where(command.c.id == bindparam("command_id"))
_TASK_DONE = select(periodic_task.c.last_ok_ms).where(periodic_task.c.name == bindparam("task"))
_FORGET_TASK = delete(periodic_task).where(periodic_task.c.name == bindparam("task"))


class CommandRows(Transaction):
    """Reads and writes commands and the times of periodic tasks."""

    def add_command(self, kind: str, job_id: str | None, args: Mapping[str, Any], actor: str) -> str:
        """Adds a command for the control plane and returns its id. Raises StoreError for an unknown job."""
        command_id = self._new_id("cmd")
        self._insert(
            command,
            id=command_id,
            kind=kind,
            job_id=job_id,
            args=dumps(args),
            actor=actor,
            at_ms=self._clock.now_ms(),
        )
        return command_id

    def open_commands(self) -> list[Command]:
        """The open commands, oldest first."""
        return [_command(row) for row in self._connection.execute(_OPEN).all()]

    def close_command(self, command_id: str, result: str) -> None:
        """Closes a command that was executed or refused, with its result. Raises NotFoundError if it is not open."""
        done = self._connection.execute(
            _CLOSE, {"command_id": command_id, "closed_at_ms": self._clock.now_ms(), "result": result}
        )
        if not done.rowcount:
            raise NotFoundError(f"there is no open command {command_id}")

    def command_result(self, command_id: str) -> str | None:
        """The result of a command; None while it is open. Raises NotFoundError."""
        row = self._connection.execute(_RESULT, {"command_id": command_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no command {command_id}")
        return None if row.result is None else str(row.result)

    def task_done_ms(self, name: str) -> int | None:
        """The market time in ms at which a periodic task last ran; None if never."""
        return self._connection.execute(_TASK_DONE, {"task": name}).scalar_one_or_none()

    def set_task_done(self, name: str, at_ms: int) -> None:
        """Records that a periodic task ran at `at_ms` (market time)."""
        self._connection.execute(_FORGET_TASK, {"task": name})
        self._insert(periodic_task, name=name, last_ok_ms=at_ms)


def _command(row: Row[Any]) -> Command:
    try:
        return record(Command, "command", row, args=mapping("command", row.id, row.args))
    except UnreadableRowError as error:
        return Command(**{**row._mapping, "args": {}, "damage": str(error)})
