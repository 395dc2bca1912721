"""The user data of a rented machine: the caller's script, and the code around it that ends the machine.

A cloud machine runs on after its work has ended, and clouds offer no renewable time to live. So the script shuts it
down when the caller's user data ends or its time is over.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from providers.errors import SetupError

_END = "TRADEWIND-END"
_SCRIPT = """#!/bin/bash
# Tradewind: a machine that trains a job. See docs/{cloud}.md.
export HOME=/root TRADEWIND_METADATA={cloud}
mkdir /run/tradewind || [ ! -d /run/tradewind ] || exit 0  # it runs already; after a reboot, the agent ends the machine
mkdir -p "$HOME" && cd "$HOME" || exit 1
{guard}cat > /run/tradewind/work <<'{end}'
{work}
{end}
/bin/bash /run/tradewind/work < /dev/null &
wait -n
{last}shutdown -h now || poweroff -f
"""
_GUARD = """python3 -I -S - {seconds} <<'{end}' &
{program}
{end}
"""
_LAST = """python3 -I -S - <<'{end}'
{program}
{end}
"""
_ELSEWHERE = re.compile(r"^from (?:__future__|providers\.machine\.lifetime) import .*\n", re.MULTILINE)


def script(cloud: str, work: str, time_to_live_s: int | None, *, takes_leave: bool = False) -> str:
    """The script that a machine of `cloud` runs as root; the same arguments give the same script. `takes_leave`: its
    program also runs, without an argument, before the machine shuts down. Raises SetupError.
    """
    guard = ""
    if time_to_live_s is not None:
        guard = _GUARD.format(seconds=time_to_live_s, end=_END, program=program(cloud))
    last = _LAST.format(end=_END, program=program(cloud)) if takes_leave else ""
    whole = _SCRIPT.format(cloud=cloud, guard=guard, end=_END, work=work, last=last)
    if whole.count(f"\n{_END}\n") != 1 + bool(guard) + takes_leave:
        raise SetupError(f"the user data of a machine has a line {_END}")
    return whole


@cache
def program(cloud: str) -> str:
    """The program that ends when the machine has to: providers.machine.lifetime and the cloud's `on_machine`."""
    own = files(f"providers.{cloud}").joinpath("on_machine.py").read_text(encoding="utf-8")
    shared = files("providers.machine").joinpath("lifetime.py").read_text(encoding="utf-8")
    return f"{shared}\n\n{_ELSEWHERE.sub('', own)}".rstrip()
