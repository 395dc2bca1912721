"""The dead man's switch of a `local` instance: ends all its processes when its time to live runs out, without the
provider.

The launcher starts a small bash loop next to the user data. It counts down from the file `deadline`, which the provider
replaces on renewal. It reads no clock, so neither a jump of a clock nor a suspended host can end the instance early.
The instance always ends slightly later than the books say, never earlier.

    python -m providers.local.switch    in an instance's environment: end that instance now
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path

from providers import processes
from providers.errors import ProviderError
from providers.local import process
from providers.local.metadata import replace_file

_DEADLINE = "deadline"
_CLAIM = "switch-claim"
_FIRED = "expired"
_PACE_S = 5
_RETRY_S = 10.0

_LOOP = """
trap '' HUP INT TERM
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < /proc/$$/stat
echo "$boot $stat" > {claim}
exec 9<> <(:)
armed=
while :; do
    read -r deadline seconds < {deadline}
    [ "$deadline" = "$armed" ] || {{ armed=$deadline; left=$seconds; }}
    [ "$left" -gt 0 ] || break
    nap=$(( left < {pace_s} ? left : {pace_s} ))
    read -r -t $nap -u 9
    left=$(( left - nap ))
done
exec {python} -P -m providers.local.switch
"""


def arm(folder: Path, expires_ms: int, left_s: float) -> None:
    """Let the instance end by itself in `left_s` wall seconds. `expires_ms` identifies that end: repeating it changes
    nothing.

    Call it before the instance starts; otherwise there is no switch. Raises OSError.
    """
    reported = folder / _DEADLINE
    if reported.exists() and reported.read_text().split()[:1] == [str(expires_ms)]:
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(reported, f"{expires_ms} {max(0, int(left_s)) + 1}\n")
    if not (folder / process.SWITCH).exists():
        python = shlex.quote(sys.executable)
        script = _LOOP.format(claim=_CLAIM, deadline=_DEADLINE, pace_s=_PACE_S, python=python)
        replace_file(folder / process.SWITCH, script)


def fired(folder: Path) -> bool:
    """True once the switch has begun to end the instance."""
    return (folder / _FIRED).exists()


def is_switch(found: processes.Process, folder: Path) -> bool:
    """True if this process of the instance is its switch."""
    switch = process.claimed_by(folder, _CLAIM)
    return switch is not None and (found.pid, found.start_ticks) == (switch.pid, switch.start_ticks)


def main() -> int:
    """End the instance that this process belongs to, however long that takes."""
    folder = Path(os.environ["TRADEWIND_INSTANCE_DIR"])
    with suppress(OSError):  # the processes must end even if the folder was removed
        (folder / _FIRED).touch()
    while True:
        try:
            processes.kill_all(os.environ[processes.ID_VARIABLE], process.claimed_by(folder))
            return 0
        except ProviderError as error:
            sys.stderr.write(f"the time to live has run out, but the instance does not end: {error}\n")
            time.sleep(_RETRY_S)


if __name__ == "__main__":
    sys.exit(main())
