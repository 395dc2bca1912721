"""The machines of the loopback EC2: hosts of a laboratory with a metadata service each, which run their user data.

As cloud-init does, they unpack user data that is compressed, and run it as root. `shutdown` in a machine ends it.
"""

from __future__ import annotations

import gzip
import signal
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.clouds.aws import AwsCloud
from tests.clouds.ec2 import Machine
from tests.clouds.imds import ADDRESS, PORT, Imds
from tests.clouds.s3 import S3
from tests.clouds.server import LoopbackServer, Request, Response
from tests.machines.lab import Host, Kind, Laboratory
from tests.machines.namespaces import network_of

_GZIP = b"\x1f\x8b"
_SHUTDOWN = "#!/bin/bash\nkill -TERM 1\n"


class Rented:
    """A host of the laboratory that is rented out."""

    def __init__(self, lab: Laboratory, host: Host, imds: Imds, prepare: Callable[[Host], None]) -> None:
        self._lab, self.host, self.imds = lab, host, imds
        host.enter("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        with network_of(host.pid):
            self.server = LoopbackServer(imds, address=ADDRESS, port=PORT)
        self.server.start()
        prepare(host)
        host.order("boot")

    @property
    def off(self) -> bool:
        return self.host.ended

    def notify(self, at: datetime) -> None:
        self.imds.interrupted_at = at

    def shut_down(self) -> None:
        self.host.signal_all(signal.SIGTERM)

    def end(self) -> None:
        self._lab.give_back(self.host)
        self.server.stop()

    def console(self) -> str:
        """What its user data printed."""
        return self.host.run("cat /var/console.log", user="root", check=False).stdout


class Aws:
    """All of AWS at one address: storage and its token service, and the rest."""

    def __init__(self, s3: S3, prices: AwsCloud) -> None:
        self._s3, self._prices = s3, prices

    def __call__(self, request: Request) -> Response:
        signed = next((value for name, value in request.headers.items() if name.lower() == "authorization"), "")
        elsewhere = any(f"/{service}/aws4_request" in signed for service in ("ec2", "ssm", "pricing"))
        return self._prices(request) if elsewhere else self._s3(request)


def starter(
    lab: Laboratory,
    now: Callable[[], datetime],
    programs: Mapping[str, str] | None = None,
    prepare: Callable[[Host], None] = lambda _: None,
) -> Callable[[dict[str, Any], bytes], Machine]:
    """What `Ec2` starts machines with. `programs` are in front of all others on their PATH; `prepare` is called before
    a machine boots."""
    kind = Kind(programs={"shutdown": _SHUTDOWN, **(programs or {})})

    def start(row: dict[str, Any], user_data: bytes) -> Machine:
        script = gzip.decompress(user_data) if user_data.startswith(_GZIP) else user_data
        return Rented(lab, lab.rent(row["InstanceId"], kind, script), Imds(row, now), prepare)

    return start
