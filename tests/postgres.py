"""A Postgres server of the tests' own: a fresh cluster on a unix socket in a temporary folder, ended with the tests.

It compares text as people do (ICU, English), so that a query which relies on the order of code points shows.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.postgres import REMEDY, find

only_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For tests of a store that are about a file."""

only_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)
"""For tests of a store that are about a server."""

AS_INSTALLED = {"listen_addresses": "''", "max_connections": "60"}
LIGHT = {  # for tests: small, and without care for a power cut
    **AS_INSTALLED,
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}


@dataclass(frozen=True)
class Server:
    """A running server. Its only role is the superuser `tradewind`; everybody who reaches the socket is let in."""

    binaries: Path
    folder: Path
    settings: Mapping[str, str]

    def url(self, database: str) -> str:
        return f"postgresql://tradewind@/{database}?host={self.folder}"

    def create(self, database: str, template: str = "template1") -> str:
        """A new database; returns its URL."""
        self.sql(f'CREATE DATABASE "{database}" TEMPLATE "{template}"')
        return self.url(database)

    def drop(self, database: str) -> None:
        """All clients are disconnected."""
        self.sql(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement on a connection of its own."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def dump(self, database: str) -> str:
        """Everything in it as SQL: equal texts are equal databases."""
        done = self._run("pg_dump", "-d", self.url(database), capture_output=True, text=True)
        lines = str(done.stdout).splitlines()
        return "\n".join(line for line in lines if not line.startswith(("\\restrict", "\\unrestrict")))  # random words

    def start(self) -> None:
        settings = " ".join(f"-c {name}={value}" for name, value in self.settings.items())
        log, options = self.folder / "log", f"{settings} -k {self.folder}"
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)

    def stop(self, mode: str = "fast") -> None:
        """`fast` throws everybody out, `immediate` is a crash."""
        self._run("pg_ctl", "stop", "-w", "-D", self._data, "-m", mode)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def init(self) -> None:
        self._run(
            "initdb", "-D", self._data, "--no-sync", "--auth=trust", "--username=tradewind",
            "--encoding=UTF8", "--locale-provider=icu", "--icu-locale=en", "--locale=C.UTF-8",
        )  # fmt: skip

    def _run(self, program: str, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[Any]:
        quiet = {"stdin": subprocess.DEVNULL}
        if not options.get("capture_output"):
            quiet |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [self.binaries / program, *arguments]
        return subprocess.run(command, check=True, cwd=self.folder, **{**quiet, **options, **_who()})


@contextmanager
def server(settings: Mapping[str, str] = LIGHT) -> Iterator[Server]:
    """A server for the time of the block. Raises RuntimeError with the remedy where Postgres is not installed."""
    binaries = find()
    if binaries is None:
        raise RuntimeError(f"the store's tests need a Postgres server: {REMEDY}")
    folder = Path(tempfile.mkdtemp(prefix="tw-pg-", dir="/tmp"))  # short: the path of a socket has at most 107 bytes
    try:
        if user := _who().get("user"):
            shutil.chown(folder, user)
            folder.chmod(0o755)
        started = Server(binaries, folder, settings)
        started.init()
        started.start()
        try:
            yield started
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                started.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _who() -> dict[str, Any]:
    """Postgres refuses to run as root: then it runs as Debian's user for it, or as nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_name, "group": user.pw_gid, "extra_groups": []}
    raise RuntimeError("Postgres refuses to run as root, and there is neither a user `postgres` nor `nobody`")
