"""A job that crosses AWS, GCP and Azure, enabled together, each behind its own unmodified client library on loopback.

The cheapest cloud takes the machine away twice, once with notice; so does each of the others, with notice. The job ends
with the same bits as without, every cloud's bill is what the ledger has for it, and nothing is left on any.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.e2e.living import until
from tests.e2e.test_another_machine import HURRY, Reference, uninterrupted
from tests.e2e.three_clouds import CLOUDS, OFFERS, STEPS, ThreeClouds, three_clouds

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    with uninterrupted(tmp_path_factory.mktemp("uninterrupted"), 1, STEPS) as reference:
        yield reference


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeClouds]:
    with three_clouds(tmp_path_factory.mktemp("three")) as world:
        yield world


@pytest.mark.timeout(1800)  # five machines, one after the other
def test_a_job_crosses_three_clouds_to_the_same_bits(world: ThreeClouds, reference: Reference) -> None:
    tradewind, ec2, gce, arm = world.tradewind, world.ec2, world.gce, world.arm
    job = world.submitted()
    first = world.training(job, OFFERS[0], step=10)

    step = world.sell_out(job, first)
    ec2.announce(world.name(first))
    second = world.training(job, OFFERS[1])
    assert second.start_step >= step >= 10

    world.sell_out(job, second)
    ec2.take(world.name(second))
    third = world.training(job, OFFERS[2])
    assert third.start_step >= second.start_step

    step = world.sell_out(job, third)
    gce.announce(world.name(third))
    fourth = world.training(job, OFFERS[3])
    assert fourth.start_step >= step

    step = world.sell_out(job, fourth)
    arm.ending_s = 3600  # to delete a machine takes Azure its time
    arm.announce(world.name(fourth), timedelta(minutes=1))
    fifth = world.training(job, OFFERS[4])
    assert fifth.start_step >= step
    until(
        "it is on record when Azure's machine ended", lambda: "tradewind-ended" in arm.keys[world.name(fourth)]["tags"]
    )
    arm.ending_s = 0

    world.machine(fifth).host.run(f"touch {HURRY}", user="root")
    tradewind.ended(job, "finished")
    assert reference.process.wait() == 0
    assert tradewind.weights_hash(job) == reference.weights_hash

    until("no machine, disk, interface or address is left", lambda: not world.left())
    ended = {world.name(run): run.end for run in tradewind.runs(job) if run.instance_id is not None}
    assert ended.keys() == world.machines().keys()
    assert [ended[world.name(run)] for run in (first, second, third)] == ["moved", "preempted", "moved"]
    world.close_books()
    assert all(world.booked_nano_usd().values())
    estimates = world.booked_nano_usd(estimated=True)
    assert estimates["aws"] == 0, "within the region of the bucket"
    assert estimates["gcp"] > 0
    assert estimates["azure"] > 0
    paid = tradewind.client.jobs.get(job).paid_nano_usd
    assert paid == sum(world.bills_nano_usd().values()) + sum(estimates.values())
    assert "list price" in tradewind.story(job)

    tradewind.client.control_plane.down()
    assert world.networks()
    tradewind.command("down", *(word for cloud in CLOUDS for word in ("--cloud", cloud)))
    assert not world.networks()
    assert not arm.keys  # Azure's records of its machines
