"""Two processes write the same objects at the same time: each conditional put has exactly one winner."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from trainers.objects.base import ObjectStore

ROUNDS, STEPS = 40, 60

WRITER = """
import sys
from trainers.objects.opening import open_store

store, own = open_store(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
won = [key for key in map(str, range(int(sys.argv[3]))) if store.put_if_absent(f"race/{key}", own.encode())]
for _ in range(int(sys.argv[4])):
    while True:
        found = store.get("count", 20)
        if store.put_if_match("count", b"%d" % (int(found.data) + 1), found.version) is not None:
            break
print(*won)
"""


def test_of_two_processes_exactly_one_wins_each_race_and_no_increment_is_lost(store: ObjectStore) -> None:
    store.put("count", b"0")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, store.url, name, str(ROUNDS), str(STEPS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    outputs = [writer.communicate(timeout=60)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]

    winners = {key: name for name, keys in zip(("one", "two"), outputs, strict=True) for key in keys}
    assert Counter(key for keys in outputs for key in keys) == Counter(map(str, range(ROUNDS)))
    for key, name in winners.items():
        assert store.get(f"race/{key}", 20).data == name.encode()
    assert store.get("count", 20).data == b"%d" % (2 * STEPS)
