"""The process that collects: `python -m providers.collect.child` reads one request on stdin and writes results to
stdout.

It lives for one round of polls. A cloud's library (Google's takes over 100 MB) uses memory only while it works, and a
crash or leak ends with the process. The process ends when its parent does, because stdin closes.
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
    """Regions of one source to poll; `regions` None means all. `since_ms` by region is the newest change already known
    there.
    """

    source: str
    options: Mapping[str, Any]
    regions: Sequence[str] | None = None
    since_ms: Mapping[str, int] = field(default_factory=dict)


def request(tasks: Iterable[Task], workers: int) -> str:
    """The line of JSON that the parent writes."""
    return json.dumps({"tasks": [asdict(task) for task in tasks], "workers": workers}) + "\n"


def run(tasks: Sequence[Task], workers: int, out: TextIO, clock: Clock) -> None:
    """Poll everything in `tasks` and write the results to `out`. A failure in one region is reported there and affects
    no other.

    The regions of a task are started together and tasks in order, so on-demand prices come before spot prices.
    """
    writing = threading.Lock()

    def write(messages: Iterable[Message]) -> None:
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
        write(of_result(source.name, result, started, clock.now_ms()))

    with ThreadPoolExecutor(workers, thread_name_prefix="poll") as pool:
        pending: list[Future[None]] = []
        for task in tasks:
            try:
                source = make_source(task.source, task.options)
                regions = source.regions() if task.regions is None else task.regions
            except Exception as error:
                write([Regions(task.source, (), error if isinstance(error, ProviderError) else _fault(error))])
                continue
            write([Regions(task.source, tuple(regions))])
            pending += [pool.submit(poll, source, region, task.since_ms.get(region)) for region in regions]
        for done in pending:
            done.result()


def _fault(error: Exception) -> ProviderError:
    """A defect in this program or a library as an error that names its location and affects only its region."""
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    return ProviderError(
        f"{type(error).__name__} at {place}: {error}", hint="this is a defect in Tradewind: please report it"
    )


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Entry point: read the request from stdin, run it, and exit."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # keep what libraries print out of the results
    body = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    run([Task(**task) for task in body["tasks"]], body["workers"], out, SystemClock())
    out.close()
    os._exit(0)  # some libraries leave threads that would block a normal exit


if __name__ == "__main__":
    main()
