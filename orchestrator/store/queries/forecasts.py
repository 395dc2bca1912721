"""Forecasts from the control plane's last decision about each job."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields

from sqlalchemy import bindparam, select, text

from orchestrator.model import JobForecast
from orchestrator.store.market.offers import batches
from orchestrator.store.rows import decoded
from orchestrator.store.schema import job_forecast
from orchestrator.store.transaction import Transaction, columns

_FIGURES = [field.name for field in fields(JobForecast)]
_COLUMNS = ["job_id", "reason", *_FIGURES]
_PUT = text(
    f"INSERT INTO job_forecast ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)}) "
    f"ON CONFLICT (job_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[1:])}"
)
_SINCE = select(*(job_forecast.c[name] for name in _COLUMNS)).where(
    job_forecast.c.job_id.in_(bindparam("job_ids", expanding=True)), job_forecast.c.at_ms >= bindparam("since_ms")
)


class ForecastRows(Transaction):
    """Reads and writes forecasts."""

    def put_forecasts(self, forecasts: Mapping[str, JobForecast | str], at_ms: int) -> None:
        """Replaces the forecast of each job, or the reason why there is none, as of `at_ms`."""
        nothing = dict.fromkeys(_FIGURES)
        rows = [
            {**nothing, "job_id": job_id, "reason": said, "at_ms": at_ms}
            if isinstance(said, str)
            else {**columns(said), "job_id": job_id, "reason": None}
            for job_id, said in forecasts.items()
        ]
        if rows:
            self._connection.execute(_PUT, rows)

    def job_forecasts(self, job_ids: Collection[str], since_ms: int) -> dict[str, JobForecast | str]:
        """The forecasts of these jobs that were made at `since_ms` or later. Raises UnreadableRowError."""
        found: dict[str, JobForecast | str] = {}
        for batch in batches(job_ids):
            for row in self._connection.execute(_SINCE, {"job_ids": batch, "since_ms": since_ms}):
                figures = {name: row._mapping[name] for name in _FIGURES}
                found[row.job_id] = (
                    decoded(JobForecast, "job_forecast", figures, row.job_id) if row.reason is None else str(row.reason)
                )
        return found
