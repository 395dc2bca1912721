"""The user data of a machine on AWS: the caller's, and around it what ends the machine.

A machine on EC2 runs on after its work has ended, and has no time to live. So the script shuts it down when the
caller's user data ends or its time is over; it is launched with InstanceInitiatedShutdownBehavior=terminate.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

from providers.errors import SetupError

MOST_BYTES = 16 << 10  # of user data, as it is sent; cloud-init unpacks it
_END = "TRADEWIND-END"
_SCRIPT = """#!/bin/bash
# Tradewind: a machine that trains a job. See docs/aws.md.
export HOME=/root TRADEWIND_METADATA=aws
mkdir -p "$HOME" /run/tradewind
cd "$HOME" || exit 1
{guard}cat > /run/tradewind/work <<'{end}'
{work}
{end}
/bin/bash /run/tradewind/work < /dev/null &
wait -n
shutdown -h now || poweroff -f
"""
_GUARD = """python3 -I -S - {seconds} <<'{end}' &
{program}
{end}
"""


def user_data(work: str, time_to_live_s: int | None) -> bytes:
    """What the machine gets: compressed, and the same for the same arguments. Raises SetupError if it is too long."""
    guard = _GUARD.format(seconds=time_to_live_s, end=_END, program=_program()) if time_to_live_s is not None else ""
    script = _SCRIPT.format(guard=guard, end=_END, work=work)
    if script.count(f"\n{_END}\n") != 1 + bool(guard):
        raise SetupError(f"the user data of a machine has a line {_END}")
    packed = gzip.compress(script.encode(), 9, mtime=0)
    if len(packed) > MOST_BYTES:
        raise SetupError(
            f"the user data of a machine on AWS has {len(packed)} bytes; the limit is {MOST_BYTES}",
            hint="use credentials with a shorter session token, such as those of an IAM user or a role of this account",
        )
    return packed


@cache
def _program() -> str:
    return files("providers.aws").joinpath("on_machine.py").read_text(encoding="utf-8").rstrip()
