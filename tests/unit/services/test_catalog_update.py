"""`catalog update`: a published catalogue is installed whole or not at all, whatever the server or the file is."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import NotFoundError, ProviderFailure, SpecError, TradewindError, UsageError
from orchestrator.services.catalog import contents as service
from orchestrator.services.catalog.update import update
from providers.catalog import catalog, installed, load
from providers.catalog.files import DATA, day_ms
from providers.catalog.manifest import MAX_FILE_BYTES, MAX_MANIFEST_BYTES, NAME, sealed
from tests.clouds.server import Fault, LoopbackServer, Request, Response, serving

SHIPPED = load()
LATER = "2026-12-01"
NOW_MS = (day_ms("2026-12-05") or 0) + 1


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's user keeps installed catalogues."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))
    return installed.home()


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with serving(lambda request: Response(404)) as started:
        yield started


Change = Callable[[Path], object]


def published(tmp_path: Path, change: Change | None = None, date: str = LATER) -> Path:
    """The shipped catalogue with another price of a p3.2xlarge, as its publisher has it; `change` alters files before
    they are sealed."""
    folder = tmp_path / "published"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DATA, folder)
    edit(folder / "prices_aws.csv", "p3.2xlarge,on_demand,3.06,", "p3.2xlarge,on_demand,2.04,")
    if change is not None:
        change(folder)
    (folder / NAME).write_text(sealed(folder, date))
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def serve(server: LoopbackServer, folder: Path) -> str:
    def answer(request: Request) -> Response:
        path = folder / request.path.rpartition("/")[2]
        return Response(body=path.read_bytes()) if path.is_file() else Response(404, b"no such file")

    server.serve(answer)
    return f"{server.url}/catalog/{NAME}"


def p3() -> float:
    [price] = [each for each in load().prices() if each.offer_id == "aws/us-east-1//p3.2xlarge/on_demand"]
    return price.nano_usd_per_hour / 1e9


def untouched(home: Path) -> None:
    assert load().version == SHIPPED.version
    assert not home.exists() or {path.name for path in home.iterdir()} <= {"update.lock"}


def test_a_newer_catalogue_counts_at_once_for_every_caller_and_says_which_it_is(server, tmp_path):
    assert (p3(), service.show(NOW_MS).installed) == (3.06, False)
    folder = published(tmp_path)
    done = update(NOW_MS, serve(server, folder))
    assert (done.changed, done.version_before, done.offers) == (True, SHIPPED.version, len(SHIPPED.rows))
    assert done.version.startswith(f"{LATER}-")
    shown = service.show(NOW_MS)
    assert (p3(), shown.installed, shown.version, shown.date) == (2.04, True, done.version, LATER)
    assert service.verify(NOW_MS).findings == ()
    assert not update(NOW_MS, str(folder)).changed, "the same from elsewhere"


@pytest.mark.parametrize("ending", ["", "/", f"/{NAME}"])
def test_a_folder_or_its_manifest_can_be_named(tmp_path, ending):
    assert update(NOW_MS, f"{published(tmp_path)}{ending}").changed
    assert p3() == 2.04


def test_a_url_that_ends_in_a_slash_is_a_folder_and_a_query_goes_with_every_file(server, tmp_path):
    at = serve(server, published(tmp_path)).removesuffix(NAME)
    done = update(NOW_MS, f"{at.replace('//', '//me:secret@')}?token=x")
    assert (done.changed, done.source) == (True, at), "what may be secret is not shown"
    assert {request.query["token"] for request in server.requests} == {"x"}
    assert server.requests[0].path == f"/catalog/{NAME}"


def test_an_older_catalogue_is_refused_unless_it_is_forced(tmp_path, home):
    older = published(tmp_path, date="2026-11-01")
    with pytest.raises(UsageError, match=r"of 2026-11-01 is older than the current one of 2026-") as caught:
        update(NOW_MS, str(older))
    assert "--force" in caught.value.hint
    untouched(home)
    assert update(NOW_MS, str(older), force=True).changed
    assert (p3(), load().date) == (2.04, "2026-11-01")


def test_a_catalogue_from_the_future_is_refused_even_by_force(tmp_path, home):
    """It would bar every later one."""
    with pytest.raises(UsageError, match="in the future"):
        update(NOW_MS, str(published(tmp_path, date="2030-01-01")), force=True)
    untouched(home)


def test_a_catalogue_that_comes_with_a_newer_tradewind_counts_again(tmp_path, monkeypatch):
    update(NOW_MS, str(published(tmp_path)))
    came = installed.bundled_manifest()
    monkeypatch.setattr(installed, "bundled_manifest", lambda: type(came)("2027-01-01", came.files, came.sha256))
    assert (p3(), service.show(NOW_MS).installed) == (3.06, False)


def test_the_one_before_is_kept_and_those_before_that_are_removed(tmp_path, home):
    for day in ("2026-12-01", "2026-12-02", "2026-12-03"):
        update(NOW_MS, str(published(tmp_path, date=day)))
    kept = sorted(path.name[:10] for path in home.iterdir() if path.is_dir())
    assert kept == ["2026-12-02", "2026-12-03"]
    [before] = [path for path in home.iterdir() if path.name.startswith("2026-12-02")]
    assert update(NOW_MS, str(before / "data"), force=True).changed, "the way back"
    assert load().date == "2026-12-02"


def test_a_link_to_a_folder_elsewhere_is_left_alone(tmp_path, home):
    (tmp_path / "elsewhere").mkdir()
    home.mkdir(parents=True)
    (home / "link").symlink_to(tmp_path / "elsewhere")
    assert update(NOW_MS, str(published(tmp_path))).changed
    assert (tmp_path / "elsewhere").is_dir()


def test_what_an_update_left_unfinished_counts_for_nothing_and_is_cleared_away(tmp_path, home):
    (home / "2026-11-30-deadbeef-x/data").mkdir(parents=True)
    (home / "current.json.new").write_text("{")
    assert load().version == SHIPPED.version
    update(NOW_MS, str(published(tmp_path)))
    assert not (home / "2026-11-30-deadbeef-x").exists()


def damaged(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: damaged(folder, "prices_gcp.csv"), "prices_gcp.csv: does not match the manifest"),
        (
            lambda folder: (folder / "flagged.csv").write_bytes((folder / "flagged.csv").read_bytes()[:-100]),
            "flagged.csv: has [0-9]+ bytes, but the manifest says [0-9]+",
        ),
        (lambda folder: (folder / "sources.csv").unlink(), "sources.csv"),
        (lambda folder: (folder / NAME).write_text('{"format": 1,\n "date": '), "manifest.json:2:1: is not JSON"),
        (lambda folder: (folder / NAME).write_bytes(b"\xff\xfe"), "manifest.json: is not JSON in UTF-8"),
        (lambda folder: (folder / NAME).write_text("[" * 200_000), "manifest.json: is not JSON"),
        (lambda folder: edit(folder / NAME, '"format": 1', '"format": 2'), "format: is .*reads format 1"),
        (lambda folder: edit(folder / NAME, LATER, "tomorrow"), "date: is .?.?tomorrow"),
        (lambda folder: edit(folder / NAME, '"flagged.csv"', '"../../x.csv"'), r"\.\./\.\./x\.csv"),
        (lambda folder: edit(folder / NAME, '"flagged.csv"', '"flagged2.csv"'), "lacks flagged.csv"),
        (lambda folder: (folder / NAME).write_text("{}" + " " * MAX_MANIFEST_BYTES), "has more than"),
    ],
    ids=["a bit", "cut off", "missing", "half", "bytes", "deep", "format", "date", "path", "lacks", "large"],
)
def test_a_damaged_catalogue_is_refused_with_its_file_and_nothing_changes(server, tmp_path, home, damage, said):
    folder = published(tmp_path)
    at = serve(server, folder)
    damage(folder)
    for origin in (str(folder), at):
        with pytest.raises((SpecError, NotFoundError, ProviderFailure), match=None if origin == at else said):
            update(NOW_MS, origin, force=True)
        untouched(home)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda folder: edit(folder / "prices_aws.csv", "p3.2xlarge,on_demand,2.04,", "p3.2xlarge,on_demand,-1,"),
            r"prices_aws\.csv:\d+:\d+: usd_per_hour: is .*above 0",
        ),
        (
            lambda folder: edit(folder / "instance_types.csv", "aws,p3.2xlarge,V100,", "aws,p3.2xlarge,V900,"),
            r'instance_types\.csv:\d+:\d+: gpu: "V900" is not a known GPU \(did you mean',
        ),
        (lambda folder: edit(folder / "sources.csv", "karpenter-aws,", "carpenter,"), r"prices_aws\.csv:\d+:.*source"),
    ],
    ids=["a price", "a GPU", "a source"],
)
def test_a_wholly_invalid_catalogue_is_refused_line_by_line(tmp_path, home, change, said):
    with pytest.raises(SpecError, match=said):
        update(NOW_MS, str(published(tmp_path, change)), force=True)
    untouched(home)


def test_a_catalogue_with_hardly_any_offer_is_taken_for_damaged(tmp_path, home):
    def emptied(folder: Path) -> None:
        for path in folder.glob("prices_*.csv"):
            path.write_text(path.read_text().partition("\n")[0] + "\n")

    with pytest.raises(UsageError, match=r"has 0 offers; the current one has \d+"):
        update(NOW_MS, str(published(tmp_path, emptied)))
    untouched(home)


def test_the_hash_that_a_publisher_tells_elsewhere_must_be_the_manifests(tmp_path, home):
    folder = published(tmp_path)
    right = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()
    with pytest.raises(UsageError, match=right):
        update(NOW_MS, str(folder), sha256="0" * 64)
    with pytest.raises(UsageError, match="is not a SHA-256"):
        update(NOW_MS, str(folder), sha256="0xabc")
    untouched(home)
    assert update(NOW_MS, str(folder), sha256=right.upper()).changed


@pytest.mark.parametrize("at", ["http://example.org/manifest.json", "file:/x", "ftp://example.org/x", "gopher:x"])
def test_an_address_that_is_not_authenticated_or_not_valid_is_refused(at, home):
    with pytest.raises(UsageError):
        update(NOW_MS, at)
    untouched(home)


def test_a_path_that_is_not_a_file_is_refused_and_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", "pipe"):
        with pytest.raises(NotFoundError, match="is not a file"):
            update(NOW_MS, str(tmp_path / name))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Response(500, b"oops"), "500"),
        (Response(404, b""), "404"),
        (Response(302, headers={"Location": "/catalog/manifest.json"}), "cannot be reached|has 2[0-9]+ bytes, but"),
        (Response(200, gzip.compress(b"\0" * (64 << 20)), headers={"Content-Encoding": "gzip"}), "more than"),
        (Response(200, b"not gzip", headers={"Content-Encoding": "gzip"}), "ended in the middle"),
    ],
    ids=["fault", "nothing there", "a circle of redirections", "a gzip bomb", "no gzip"],
)
@pytest.mark.parametrize("what", [NAME, "prices_aws.csv"])
def test_an_odd_server_changes_nothing(server, tmp_path, home, monkeypatch, answer, said, what):
    monkeypatch.setattr("orchestrator.services.catalog.update.Patience", lambda: _hasty())
    at = serve(server, published(tmp_path))
    server.faults = [Fault(lambda request: request.path.endswith(what), None, answer)]
    with pytest.raises(TradewindError, match=said):
        update(NOW_MS, at)
    untouched(home)


def _hasty():
    from providers.collect.http import Patience

    return Patience(read_s=1.0, attempts=1)


def test_a_damaged_pointer_blocks_nothing_and_is_reported_and_repaired_by_an_update(tmp_path, home):
    folder = published(tmp_path)
    update(NOW_MS, str(folder))
    for text in ("{", "[]", "\0", '{"folder": "..", "date": "2026-12-01", "instead_of": "2026-11-21"}'):
        (home / "current.json").write_text(text)
        assert load().version == SHIPPED.version, "a control plane goes on"
        assert "current.json" in service.show(NOW_MS).damage[0]
        [finding] = service.verify(NOW_MS).findings
        assert "tradewind catalog update" in finding.remedy
        assert update(NOW_MS, str(DATA)).changed, "the same as the one that came, to be rid of the damage"
        assert (service.show(NOW_MS).damage, service.show(NOW_MS).installed) == ((), True)
    (home / "current.json").unlink()
    assert update(NOW_MS, str(folder)).changed


def test_verify_notices_a_file_that_was_changed_after_it_was_installed(tmp_path, home):
    update(NOW_MS, str(published(tmp_path)))
    [folder] = [path for path in home.iterdir() if path.is_dir()]
    edit(folder / "data/prices_aws.csv", "p3.2xlarge,on_demand,2.04,", "p3.2xlarge,on_demand,2.05,")
    (folder / "data/extra.csv").write_text("x\n")
    catalog._unusable.cache_clear()  # as in the next process
    said = {(each.file, each.message) for each in service.verify(NOW_MS).findings}
    assert said == {
        ("prices_aws.csv", "does not match the manifest: its SHA-256 differs"),
        ("extra.csv", "is not in the manifest"),
    }
    assert p3() == 3.06, "nothing of it counts any more"
    assert not service.show(NOW_MS).installed


def test_a_file_that_is_lost_after_installation_blocks_nothing(tmp_path, home):
    update(NOW_MS, str(published(tmp_path)))
    [folder] = [path for path in home.iterdir() if path.is_dir()]
    (folder / "data/interruptions_aws.csv").unlink()
    catalog._unusable.cache_clear()
    assert load().interruptions
    assert [each.file for each in service.verify(NOW_MS).findings] == ["interruptions_aws.csv"]


WHOLE = json.loads((DATA / NAME).read_text())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(["format", "date", "files", "x"]), st.none() | st.integers() | st.text(max_size=9))
    | st.builds(
        lambda name, entry: {**WHOLE, "files": {**WHOLE["files"], name: entry}},
        st.text(max_size=12) | st.just("prices_aws.csv"),
        st.none()
        | st.dictionaries(
            st.sampled_from(["size_bytes", "sha256"]),
            st.booleans() | st.integers(-1, MAX_FILE_BYTES + 2) | st.floats() | st.text(max_size=70),
        ),
    )
)
def test_law_no_manifest_but_a_true_one_changes_anything(tmp_path, home, body):
    folder = published(tmp_path)
    (folder / NAME).write_text(json.dumps(body))
    with pytest.raises(TradewindError):
        update(NOW_MS, str(folder), force=True)
    untouched(home)
