"""A job whose checkpoints are in a bucket, on real processes: its machine is killed, another one resumes exactly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clouds.s3 import S3, environment
from tests.clouds.server import serving
from tests.e2e.living import STEPS, Reference, Tradewind
from trainers.checkpoint.store import fence, manifests

pytestmark = pytest.mark.ray

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of a place in a bucket, and the environment that leads there."""
    s3 = S3()
    with serving(s3) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(server).items():
            patch.setenv(name, value)
        yield f"s3://{s3.bucket}/checkpoints"


@pytest.fixture(scope="module")
def living(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tradewind]:
    """An installation of its own: its control plane has the environment of `up`."""
    tradewind = Tradewind(tmp_path_factory.mktemp("bucket"), TRADEWIND_LEASE_S="8", TRADEWIND_SUSPECT_AFTER_S="3")
    try:
        tradewind.up()
        yield tradewind
    finally:
        tradewind.close()


def test_a_job_whose_machine_is_killed_resumes_from_the_bucket_to_the_same_bits(
    living: Tradewind, bucket: str, reference: Reference
) -> None:
    endpoint = {name: living.environment[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION")}
    tiny = {"entry": "tiny:main", "steps": STEPS, "args": {"hurry": str(living.hurry_file("far"))}}
    train = {**tiny, "secrets": [*KEYS], "env": endpoint}
    job = living.submit("far", train=train, checkpoint={"to": bucket})
    first = living.training(job, steps=15)
    started_with = [living.environment_of(pid) for pid in living.processes(first)]
    assert started_with
    assert not any(KEYS[1] in variables for variables in started_with), "the job's program could read it there"
    living.cloud.crash(first.instance_id or "")
    second = living.training(job, after=first)
    assert second.start_step > 0
    living.finish(job)
    assert living.losses(job) == reference.losses()
    assert living.weights_hash(job) == reference.weights_hash()

    assert manifests(bucket, job)
    owner = fence(bucket, job)
    assert owner is not None
    assert owner.generation == second.generation
    assert not (living.state / "checkpoints").exists()
