"""The process that collects: `python -m providers.collect.child`, one request on stdin, lines of facts on stdout.

It lives for one round of polls, so that a cloud's library (the Google one takes over 100 MB) is paid for only while it
works, and a fault or a leak in one ends with the process. It ends when its parent does: stdin closes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from providers.clock import Clock, SystemClock
from providers.collect.facts import PollResult, PriceSource
from providers.collect.sources import make_source
from providers.collect.wire import Message, Regions, lines, of_result
from providers.errors import ProviderError


@dataclass(frozen=True, slots=True)
class Task:
    """PollOutcome these regions of a source; all that it has when `regions` is None. `since_ms` by region: what is
    known."""

    source: str
    options: Mapping[str, Any]
    regions: Sequence[str] | None = None
    since_ms: Mapping[str, int] = field(default_factory=dict)


def request(tasks: Iterable[Task], workers: int) -> str:
    """The line that a parent writes."""
    return json.dumps({"tasks": [asdict(task) for task in tasks], "workers": workers}) + "\n"


def run(tasks: Sequence[Task], workers: int, out: TextIO, clock: Clock) -> None:
    """PollOutcome everything that the tasks name. One region's failure is in its own ending and nowhere else.

    A task's regions are started together and tasks in their order, so that on-demand prices come before spot.
    """
    writing = threading.Lock()

    def tell(messages: Iterable[Message]) -> None:
        text = lines(messages)
        with writing:
            out.write(text)
            out.flush()

    def poll(source: PriceSource, region: str, since_ms: int | None) -> None:
        started = clock.now_ms()
        try:
            result = source.poll(region, started, since_ms)
        except Exception as error:
            result = PollResult(region, error=_fault(error))
        tell(of_result(source.name, result, started, clock.now_ms()))

    with ThreadPoolExecutor(workers, thread_name_prefix="poll") as pool:
        waiting: list[Future[None]] = []
        for task in tasks:
            try:
                source = make_source(task.source, task.options)
                regions = source.regions() if task.regions is None else task.regions
            except Exception as error:
                tell([Regions(task.source, (), error if isinstance(error, ProviderError) else _fault(error))])
                continue
            tell([Regions(task.source, tuple(regions))])
            waiting += [pool.submit(poll, source, region, task.since_ms.get(region)) for region in regions]
        for done in waiting:
            done.result()


def _fault(error: Exception) -> ProviderError:
    """A fault of this program or a library: named, so that it can be reported, and confined to its region."""
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    return ProviderError(f"{type(error).__name__} at {place}: {error}", hint="this is a fault of Tradewind: report it")


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # whatever a library prints must not mix with facts
    body = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    run([Task(**task) for task in body["tasks"]], body["workers"], out, SystemClock())
    out.close()
    os._exit(0)  # some libraries leave threads that would keep us


if __name__ == "__main__":
    main()
