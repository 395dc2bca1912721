"""What the control plane makes and stores for machines that boot, for one or several."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.engine.node_runtime import NodeRuntime
from orchestrator.errors import SiteError
from orchestrator.formats.codec import loads
from orchestrator.nodes import sealing
from orchestrator.nodes.access import aws
from orchestrator.nodes.access.grants import NoLimitedAccess
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.boot.contact import Contact, Urls
from orchestrator.nodes.boot.launching import RENEWED_S, Launching, Remote
from orchestrator.nodes.boot.runtime_files import runtime_files
from orchestrator.nodes.boot.user_data import MOST_BYTES
from orchestrator.nodes.channel import control_store
from orchestrator.nodes.messages import NodeFacts
from orchestrator.nodes.seating import take_seat
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import LoopbackServer
from tests.unit.nodes.boot.conftest import CACHED, KEY, TOKEN, Plane, now, remote
from trainers.errors import StoreNotFound, StoreReadOnly
from trainers.objects.opening import open_store

# What the control plane makes


def test_user_data_is_short_and_the_same_for_the_same_token(plane: Plane) -> None:
    text = plane.user_data()
    assert len(text.encode()) < MOST_BYTES
    plane.clock = lambda: now() + timedelta(minutes=5)
    assert plane.user_data() == text
    assert plane.user_data("launch-2") != text
    assert text.startswith("#!/usr/bin/env bash\n")


def test_user_data_holds_no_key_of_the_store_and_is_stored_only_sealed(plane: Plane, s3: GuardedS3) -> None:
    text = plane.user_data()
    assert s3.secret not in unpacked(text)
    store = open_store(plane.root)
    boot_token = sealing.boot_token(KEY, TOKEN).encode()
    for key in store.keys():  # noqa: SIM118
        found = store.get(key, 1 << 24)
        assert found is not None
        assert boot_token not in found.data, key
        assert b"X-Amz-Signature" not in found.data, key


def unpacked(text: str) -> str:
    """User data with what is compressed in it."""
    packed = re.findall(r'b85decode\("([^"]+)"\)', text)
    assert len(packed) == 2
    return "".join([text, *(zlib.decompress(base64.b85decode(each)).decode() for each in packed)])


def test_another_installation_cannot_use_what_one_has_made(plane: Plane) -> None:
    plane.user_data()
    other = Launching(plane.root, "install", lambda: b"o" * 32, Issuer(now), now)
    with pytest.raises(SiteError, match="key of this installation") as caught:
        other.user_data(TOKEN, Remote("job-1", "run-1", f"{plane.root}/checkpoints"))
    assert "its own store_root" in caught.value.hint


def test_a_long_session_token_of_the_control_plane_still_fits(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "own_credentials", lambda _: launching_credentials("t" * 1800))
    monkeypatch.setattr(Issuer, "issue", lambda *_: None)
    assert len(plane.user_data().encode()) < MOST_BYTES


def launching_credentials(token: str) -> object:
    from orchestrator.nodes.access.signing import Credentials

    return Credentials("ASIAKEY", "hidden", token)


def test_the_runtime_is_stored_once(plane: Plane, server: LoopbackServer) -> None:
    before = len(server.requests)
    plane.user_data("a")
    plane.launching().user_data("b", Remote("job-1", "run-1", f"{plane.root}/checkpoints"))
    puts = [each for each in server.requests[before:] if each.method == "PUT" and "/runtime/" in each.path]
    assert len(puts) == 1


def test_each_launch_keeps_the_runtime_from_being_deleted_as_unused(plane: Plane, server: LoopbackServer) -> None:
    launching = plane.launching()
    remote = Remote("job-1", "run-1", f"{plane.root}/checkpoints")
    launching.user_data("a", remote)
    store = open_store(plane.root)
    (key,) = store.keys("runtime")
    store.delete(key)
    launching.user_data("b", remote)
    assert store.keys("runtime") == [key]
    before = len(server.requests)
    later = replace(plane, clock=lambda: now() + timedelta(seconds=RENEWED_S + 60))
    later.launching().user_data("c", remote)
    assert [each.method for each in server.requests[before:] if each.path.endswith(key)] == ["HEAD", "PUT"]


def test_the_same_files_are_the_same_runtime() -> None:
    files = runtime_files()
    assert files.digest == runtime_files().digest
    assert len(files.archive) < 4 << 20


def test_a_store_without_limited_credentials_rents_nothing(plane: Plane, s3: GuardedS3) -> None:
    s3.with_sts = False
    try:
        with pytest.raises(NoLimitedAccess):
            plane.user_data()
    finally:
        s3.with_sts = True


def test_a_read_only_store_rents_nothing(plane: Plane, s3: GuardedS3) -> None:
    s3.read_only = True
    try:
        with pytest.raises(StoreReadOnly):
            plane.user_data()
    finally:
        s3.read_only = False


def test_a_store_in_another_region_rents_nothing(plane: Plane, s3: GuardedS3) -> None:
    s3.region = "eu-central-1"
    try:
        with pytest.raises(StoreNotFound, match="another region") as caught:
            plane.user_data()
        assert "AWS_REGION" in caught.value.hint
    finally:
        s3.region = "us-east-1"


def test_a_folder_rents_nothing(tmp_path: Path) -> None:
    plane = Plane(str(tmp_path))
    with pytest.raises(SiteError, match="cannot reach") as caught:
        plane.user_data()
    assert "store_root" in caught.value.hint


def test_two_installations_share_a_bucket_and_nothing_but_the_runtime(plane: Plane) -> None:
    plane.user_data()
    other = Launching(plane.root, "other", lambda: b"o" * 32, Issuer(now), now, files=CACHED)
    other.user_data(TOKEN, Remote("job-2", "run-2", f"{plane.root}/checkpoints"))
    (first, second) = (each.scope(TOKEN) for each in (plane.launching(), other))
    assert first is not None
    assert second is not None
    assert not set(first.writes) & set(second.writes)
    assert first.reads == second.reads


def test_what_is_stored_for_a_machine_that_never_started_is_deleted_with_its_run(plane: Plane, tmp_path: Path) -> None:
    runtime = NodeRuntime(
        control_store(f"{plane.root}/control/install"),
        key=lambda: KEY,
        runs_dir=tmp_path / "runs",
        environments=tmp_path / "environments",
        temp_dir=tmp_path / "ray",
        lease_s=60.0,
        launching=plane.launching(),
    )
    runtime.bootstrap(token=TOKEN, remote=Remote("job-1", "run-1", f"{plane.root}/checkpoints"))
    assert runtime.known() == ["run-1"]
    runtime.forget("run-1")
    assert open_store(plane.root).keys("control") == []


# Several machines of one run


def test_user_data_of_many_machines_is_one_short_text_and_their_urls_are_stored_locked(
    plane: Plane, s3: GuardedS3
) -> None:
    text = plane.launching().user_data(TOKEN, remote(plane), 500)
    assert len(text.encode()) < MOST_BYTES
    assert plane.launching().user_data(TOKEN, remote(plane), 500) == text
    found = open_store(plane.root).get(f"control/install/{TOKEN}/seats", 1 << 24)
    assert found is not None
    assert b"X-Amz-Signature" not in found.data


def contacts(plane: Plane, text: str, nodes: int) -> list[Contact]:
    """How the machines that boot from this text reach the objects of their ranks."""
    given = program_config(text)
    seats = Contact(loads(Urls, json.dumps(given["urls"]))).seats(str(given["boot_token"]))
    return [Contact(seats, rank) for rank in range(nodes)]


def program_config(text: str) -> dict[str, object]:
    packed = re.findall(r'b85decode\("([^"]+)"\)', text)[1]
    return json.loads(zlib.decompress(base64.b85decode(packed)))


def test_machines_without_credentials_take_their_seats_once_each(plane: Plane) -> None:
    text = plane.launching().user_data(TOKEN, remote(plane), 2)
    doors = contacts(plane, text, 2)
    assert take_seat(doors, instance="a", boot="1") == 0
    assert take_seat(doors, instance="b", boot="1") == 1
    assert take_seat(doors, instance="a", boot="1") == 0, "its agent starts again"
    assert take_seat(doors, instance="a", boot="2") is None
    assert take_seat(doors, instance="c", boot="1") is None
    assert doors[0].facts() is None
    assert doors[1].put_facts(NodeFacts("boot", "key", "proof", ray="10.0.0.1:4000"))
    assert doors[0].facts() is None
    reported = doors[1].facts()
    assert reported is not None
    assert reported.ray == "10.0.0.1:4000"


def test_a_machine_of_several_may_reach_its_own_control_objects_only(plane: Plane) -> None:
    plane.launching().user_data(TOKEN, remote(plane), 2)
    first, second = (plane.launching().scope(f"{TOKEN}/{rank}") for rank in range(2))
    assert first is not None
    assert second is not None
    assert first.writes[0].endswith(f"/control/install/{TOKEN}/0")
    assert second.writes[0].endswith(f"/control/install/{TOKEN}/1")
    assert first.writes[1:] == second.writes[1:]
    assert first.reads == second.reads


def test_seats_of_another_launch_are_not_taken(plane: Plane) -> None:
    text = plane.launching().user_data(TOKEN, remote(plane), 2)
    given = program_config(text)
    with pytest.raises(SiteError, match="seats"):
        Contact(loads(Urls, json.dumps(given["urls"]))).seats("f" * 64)
