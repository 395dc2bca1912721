"""A dashboard of a small generated fleet, served in this process; and a reader that keeps what pages complain of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from orchestrator.client import Client
from orchestrator.installation import Installation
from orchestrator.model import Event, Group, Job, JobSpec, Run, TrainSpec, new_id
from orchestrator.services.caller import Caller
from orchestrator.web.demo.fleet import Size
from orchestrator.web.demo.opening import NOW_MS, demo_installation
from orchestrator.web.serve import serving
from orchestrator.web.site import Site

SMALL = Size(jobs=60, changes_per_day=2.0, periods_per_day=2, starts=1)
HOSTILE = ('<script>document.title="pwned"</script>', "\"'><img src=x onerror=alert(1)>", "=1+1", "{{7*7}}${7*7}")


@dataclass
class Served:
    """A running dashboard."""

    url: str
    client: Client
    installation: Installation
    jobs: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of an address."""
        try:
            with urlopen(Request(self.url + path, headers=headers, method=method), timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def json(self, path: str) -> Any:
        """The JSON document at an address."""
        status, _, body = self.get(path)
        assert status == 200, (status, body[:300])
        return json.loads(body)


@contextmanager
def small_fleet(folder: Path) -> Iterator[Served]:
    """A dashboard over a small fleet with some jobs and groups whose names are attacks."""
    with demo_installation(folder / "fleet", SMALL) as made:
        jobs = {name: add_hostile(made, name, number) for number, name in enumerate(HOSTILE)}
        client = Client.over(made, Caller("tester"))
        with serving(Site(client)) as url:
            yield Served(url, client, made, jobs)


def add_hostile(installation: Installation, name: str, number: int) -> str:
    """A queued job with such a name, project, group, owner, note and run."""
    at = Random(number)
    job_id, group_id = new_id("job", NOW_MS - number, at), new_id("group", NOW_MS - number, at)
    group = Group(group_id, name, "cheapest", name, name, NOW_MS - number)
    train = TrainSpec("a:b", None, {}, "/", {}, (), 100, None)
    job = Job(
        job_id, JobSpec(name=name, project=name, labels={name: name}, train=train), name, NOW_MS - number, "queued"
    )
    job = replace(job, group_id=group_id)
    offer_id = "aws/us-east-1/us-east-1a/p3.2xlarge/spot"
    run = Run(new_id("run", NOW_MS, at), job_id, 1, offer_id, None, "ended", NOW_MS - number, end="aborted")
    event = Event(
        f"ev_hostile_{number}", NOW_MS, "job.submitted", name, f"user:{name}", job_id, project=name, owner=name
    )
    with installation.store.write() as tx:
        tx.add_group(group)
        tx.add_job(job)
        tx.add_run(run)
        tx.add_event(event)
    return job_id
