"""Readers of a dashboard, each a thread of this process, which request one page after the other.

    python -m benchmarks._readers ADDRESS READERS SECONDS PATH...

They represent browsers on other machines, so they run with the lowest priority and leave this machine's cores to the
control plane. Prints JSON: their start and end on the monotonic clock, the seconds for each page, and the failures.
"""

from __future__ import annotations

import json
import sys
import time
from threading import Thread
from urllib.request import urlopen

from orchestrator.web.serve import give_way


def main(address: str, readers: int, lasts_s: float, pages: list[str]) -> None:
    seconds: list[float] = []
    errors: list[str] = []
    give_way()
    began_s = time.monotonic()

    def reader(number: int) -> None:
        place = number
        while time.monotonic() < began_s + lasts_s:
            asked_s = time.monotonic()
            try:
                urlopen(address + pages[place % len(pages)], timeout=60).read()
            except OSError as error:
                errors.append(str(error))
            seconds.append(time.monotonic() - asked_s)
            place += 1

    threads = [Thread(target=reader, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended_s = min(began_s + lasts_s, time.monotonic())
    print(json.dumps({"began_s": began_s, "ended_s": ended_s, "seconds": seconds, "errors": errors}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
