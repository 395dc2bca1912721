"""docs/exit-codes.md: what each exit code of the command line means, from the tree of errors."""

from __future__ import annotations

from orchestrator import errors
from orchestrator.cli.app import CTRL_C, READER_GONE
from orchestrator.cli.commands.plans import CHANGES

HEAD = """# Exit codes

<!-- Made by `python -m scripts.gen_docs` from orchestrator/errors.py and orchestrator/cli. -->

| code | means | errors of the SDK |
|---|---|---|
"""
MEANINGS = {
    0: "done",
    1: "something unexpected: a bug; run it again with `tradewind --debug ...`",
    2: "the command or an argument is not valid here, or the command needs an answer and stdin is not a terminal",
    3: "the job file, the configuration, a saved plan or a catalogue is wrong; every problem is named with its line",
    4: "no such job, run, plan, migration, offer or file",
    5: "a provider, its credentials, the store, the site, an optional package or a full standard output",
    6: "infeasible: no offer meets the objective and the constraints",
    7: "the plan is stale: the market or the jobs moved since, and the message says what did",
    8: "some of several things failed; the awaited job failed, was cancelled or is paused; `doctor` found what fails",
    9: "a budget or another limit refused to spend",
    CHANGES: "`plan --check`: applying the plan would start or move something",
    CTRL_C: "interrupted by Ctrl-C",
    READER_GONE: "whoever read the output closed it (as `head` does)",
}

JSON = """
With `--output json` the error is part of the document on stdout, and the exit code is the same:

```json
{
  "schema": "tradewind/error/v1",
  "error": {
    "code": 3,
    "type": "SpecError",
    "message": "job.yaml:4:3: resources.gpu: ...",
    "hint": "",
    "problems": [
      {"file": "job.yaml", "line": 4, "column": 3, "field": "resources.gpu", "message": "...", "hint": "..."}
    ]
  }
}
```

`type` is the error of the SDK; `problems` lists every mistake of a file, with `null` as line and column where there is
none. A command that has a result as well (`doctor`, `plan`, `wait`) adds `error` to the document of the result.
"""


def exit_codes_page() -> str:
    """The page's text."""
    rows = [f"| {code} | {meaning} | {_errors(code)} |\n" for code, meaning in MEANINGS.items()]
    return HEAD + "".join(rows) + JSON


def _errors(code: int) -> str:
    kinds: list[type[errors.TradewindError]] = [errors.TradewindError, *_below(errors.TradewindError)]
    names = dict.fromkeys(kind.__name__ for kind in kinds if kind.exit_code == code)  # one may have two parents
    return ", ".join(f"`{name}`" for name in names)


def _below(kind: type[errors.TradewindError]) -> list[type[errors.TradewindError]]:
    found = []
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            found += [each, *_below(each)]
    return found
