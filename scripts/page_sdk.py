"""docs/sdk.md: how to use Tradewind from Python, with the script that a test runs, and every method of the Client."""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from pathlib import Path

from orchestrator import Client

SCRIPT = Path("examples/sdk/first_steps.py")
_ROOT = Path(__file__).resolve().parent.parent

_TEXT = """\
<!-- Made by `python -m scripts.gen_docs` from scripts/page_sdk.py, examples/sdk and orchestrator/client. -->

# Tradewind from Python

Everything that the command line can do is a method of `orchestrator.Client`. It works in your process, on the state
folder of this machine. `make setup` installs it into `.venv`; `orchestrator` is typed.

```python
import orchestrator

with orchestrator.Client() as client:
    job = client.jobs.submit("examples/gpt.yaml")
    client.control_plane.up()
    print(client.jobs.wait(job.id).paid_nano_usd / 1e9, "USD")
```

`Client()` uses the configured installation, `Client(state_dir="...")` the one in that folder, without a configuration
file. Money is integer nano-USD (`_nano_usd`), instants are epoch milliseconds of market time (`_ms`), durations are
market seconds (`_s`) or real ones (`_wall_s`). Results are frozen dataclasses; `orchestrator.to_json(result)` gives the
document that `--output json` prints.

## Plan and submit

Wherever a job is expected, pass the path of a [job file](job-file.md), a mapping of the same form, or an
`orchestrator.JobSpec`. Paths in a mapping are relative to the working folder.

```python
plan = client.plans.create({"name": "gpt", "train": {"entry": "gpt:main", "steps": 350}, "resources": {"gpu": "H100"}})
for decision in plan.decisions:
    print(decision.offer_id, decision.cost_nano_usd, decision.finish_at_ms, decision.reason)
job = client.jobs.submit(plan, token="nightly-2026-11-22")
```

A `token` of your choice makes it safe to submit again after an error: the same submission returns the same job. To have
a plan reviewed first, `client.plans.save` writes it and `client.plans.apply` acts on it, or refuses if the market has
changed.

## Wait, watch, fetch

```python
job = client.jobs.wait("gpt", timeout_s=3600, progress=lambda job: print(job.state, job.step))
for line in client.jobs.logs("gpt", follow=True):
    print(line.number, line.text)
for batch in client.events.follow("gpt"):
    for event in batch.events:
        print(event.kind, event.message)
print(client.jobs.fetch("gpt", "results").missing)
```

`wait` returns when the job has ended or is paused and its cost is final. `timeout_s` is in real seconds.

## Report

```python
report = client.reports.get("gpt")  # without a name: of all jobs
client.reports.write_html(report, "report.html")
```

## Pages

Listings have a `limit` and a `cursor`, and return a `next_cursor`, which is `None` on the last page.
`orchestrator.pages` reads them all:

```python
for page in orchestrator.pages(client.jobs.list, ended=True, limit=500):
    for job in page.jobs:
        print(job.name, job.paid_nano_usd)
```

A cursor is opaque, and valid for the same arguments (`limit` may change). Every row that was there when you read the
first page comes exactly once, even if rows are added or prices change before you read the next one. A row that was
added meanwhile comes once or not at all. `limit=None` returns everything.

Two exceptions: offers with `work` are ranked again for each page, so a speed that is measured in between can move them;
and an offer that its source drops or takes up in between can be missing.

## Errors

Every error is an `orchestrator.TradewindError`. `str(error)` says what is wrong, `error.hint` what to do about it, and
`error.exit_code` is that of the command line: see [exit-codes.md](exit-codes.md).

```python
try:
    client.jobs.submit({"name": "gpt", "budget": "a lot"})
except orchestrator.SpecError as error:
    for problem in error.problems:
        print(problem.field, problem.message, problem.hint)
except orchestrator.InfeasibleError as error:
    print("no offer fits:", error, error.hint)
```

## Threads

Any number of threads may use one `Client` at the same time. They share one opening of the state folder, and each method
is one or more transactions of its own. `wait`, `follow` and `watch` block only the thread that called them. Iterators
such as `client.jobs.logs` belong to one thread.

## Who calls

```python
client = orchestrator.Client(caller=orchestrator.Caller("ann", project="vision"))
```

The caller's `owner` is recorded with every job, order and event of this client, and its `project` is that of jobs which
do not name one. Default: the operating system's user, project `default`. A caller is a name, not a permission: nothing
checks it, and every caller may do everything.

## A complete script

`examples/sdk/first_steps.py` needs no account, no GPU and no Ray:

"""


def sdk_page() -> str:
    """The page's text."""
    script = (_ROOT / SCRIPT).read_text(encoding="utf-8")
    parts = [_TEXT, f"```python\n{script}```\n", "\n## Every method\n"]
    client = Client(state_dir="unused")  # opens nothing
    for name, value in vars(Client).items():
        if isinstance(value, cached_property):
            parts.append(_namespace(name, value, type(getattr(client, name))))
    return "".join(parts)


def _namespace(name: str, described: cached_property[object], kind: type) -> str:
    rows = "".join(
        f"| {_cell(f'`{method}{_signature(function)}`')} | {_cell(inspect.getdoc(function) or '')} |\n"
        for method, function in vars(kind).items()
        if inspect.isfunction(function) and not method.startswith("_")
    )
    about = _flat(f"{inspect.getdoc(described.func) or ''} {inspect.getdoc(kind) or ''}")
    return f"\n### client.{name}\n\n{about}\n\n| method | |\n|---|---|\n{rows}"


def _signature(function: object) -> str:
    """Without types, which are in the code, and without `self`."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    names = [
        each.replace(annotation=inspect.Parameter.empty, default=_default(each.default))
        for name, each in signature.parameters.items()
        if name != "self"
    ]
    return str(signature.replace(parameters=names, return_annotation=inspect.Signature.empty))


class _Named:
    def __repr__(self) -> str:
        return "..."


def _default(value: object) -> object:
    return _Named() if callable(value) and value is not inspect.Parameter.empty else value


def _cell(text: str) -> str:
    return _flat(text).replace("|", "\\|")


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
