"""Code that travels: packed when its job is submitted, once, and not without being asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import StoreError, TokenConflictError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import CheckpointSpec, JobSpec, Where
from orchestrator.nodes.unpacking import unpacked
from orchestrator.services.jobs import apply, plan, submit
from orchestrator.services.jobs import code as codes
from orchestrator.services.jobs.code import code_of
from orchestrator.services.views import PlanView
from providers import traits
from tests.unit.services.recorded_history import ME, program, spec
from trainers.objects.opening import open_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


@pytest.fixture
def wanted(folder: Path) -> JobSpec:
    return spec(train=program(folder))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of the fake cloud have folders of their own."""
    monkeypatch.setitem(traits._OF, "fake", replace(traits.traits_of("fake"), shares_host=False))


def _plan(installation: Installation, wanted: JobSpec) -> PlanView:
    return plan.preview(installation, [wanted])


def _stored(installation: Installation) -> list[str]:
    return sorted(open_store(installation.stored("jobs")).keys())


def test_code_for_machines_of_this_host_stays_where_it_is(installation: Installation, wanted: JobSpec) -> None:
    assert code_of(installation, wanted) is None
    job = submit.submit(installation, _plan(installation, wanted), caller=ME)
    with installation.store.read() as tx:
        assert tx.job(job.id).spec.train.code is None
    assert _stored(installation) == []


@pytest.mark.usefixtures("elsewhere")
def test_the_code_that_runs_is_the_code_that_was_submitted(
    installation: Installation, wanted: JobSpec, folder: Path, tmp_path: Path
) -> None:
    job = submit.submit(installation, _plan(installation, wanted), caller=ME)
    submitted = (folder / "train.py").read_text()
    (folder / "train.py").write_text("changed afterwards")
    with installation.store.read() as tx:
        digest = tx.job(job.id).spec.train.code
    assert digest is not None
    there = unpacked(open_store(installation.job_root(job.id)), digest, tmp_path / "machine")
    assert (there / "train.py").read_text() == submitted
    assert _stored(installation) == [f"{installation.store.install_id}/{job.id}/workdir/{digest}.tar.gz"]


@pytest.mark.usefixtures("elsewhere")
def test_a_plan_is_applied_with_the_code_as_it_is_then(
    installation: Installation, wanted: JobSpec, folder: Path
) -> None:
    view = _plan(installation, wanted)
    assert view.new_jobs[0].spec.train.code is None
    (job_id,) = apply.apply(installation, view, caller=ME).job_ids
    with installation.store.read() as tx:
        assert tx.job(job_id).spec.train.code is not None


@pytest.mark.usefixtures("elsewhere")
def test_submitting_again_with_the_token_uploads_nothing_and_knows_the_job(
    installation: Installation, wanted: JobSpec, folder: Path
) -> None:
    job = submit.submit(installation, _plan(installation, wanted), caller=ME, token="once")
    before = _stored(installation)
    (folder / "train.py").write_text("def main(**args): return 1\n")
    again = submit.submit(installation, _plan(installation, wanted), caller=ME, token="once")
    assert again.id == job.id
    assert _stored(installation) == before
    with pytest.raises(TokenConflictError):
        submit.submit(installation, _plan(installation, replace(wanted, name="other")), caller=ME, token="once")
    assert _stored(installation) == before


@pytest.mark.usefixtures("elsewhere")
def test_a_job_that_only_local_machines_may_run_uploads_nothing(installation: Installation, wanted: JobSpec) -> None:
    assert code_of(installation, replace(wanted, where=Where(clouds=("loc*",)))) is None
    assert code_of(installation, replace(wanted, where=Where(clouds=("fa*",)))) is not None


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("large", [True, False])
def test_large_code_and_what_may_be_secrets_need_a_yes(
    installation: Installation, wanted: JobSpec, folder: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    (folder / "data.bin" if large else folder / ".env").write_bytes(b"x" * 2_000_000)
    if large:
        monkeypatch.setattr(codes, "LARGE_BYTES", 1_000_000)
    view = _plan(installation, wanted)
    with pytest.raises(UsageError, match="2 MB" if large else r"may contain secrets: \.env") as refused:
        submit.submit(installation, view, caller=ME)
    assert str(folder / ".tradewindignore") in refused.value.hint
    assert "--yes" in refused.value.hint
    with pytest.raises(UsageError):
        apply.apply(installation, view, caller=ME)
    assert _stored(installation) == []
    with installation.store.read() as tx:
        assert tx.jobs() == []
    found = code_of(installation, wanted)
    assert found is not None
    assert found.concern == str(refused.value)
    (folder / ".tradewindignore").write_text("data.bin\n.env\n")
    found = code_of(installation, wanted)
    assert found is not None
    assert found.concern is None
    (folder / ".tradewindignore").unlink()
    submit.submit(installation, view, caller=ME, accept_code=True)


@pytest.mark.usefixtures("elsewhere")
def test_what_tradewind_stores_never_travels(installation: Installation, wanted: JobSpec) -> None:
    folder = installation.state_dir.parent
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "chunk").write_text("of an earlier job")
    own = replace(wanted, train=replace(wanted.train, workdir=str(folder)))
    found = code_of(installation, replace(own, checkpoint=CheckpointSpec(to=str(folder / "checkpoints"))))
    assert found is not None
    assert found.files == 1  # train.py, and no database


@pytest.mark.usefixtures("elsewhere")
def test_a_store_that_takes_no_code_takes_no_job(installation: Installation, wanted: JobSpec) -> None:
    view = _plan(installation, wanted)
    Path(installation.stored("jobs")).write_text("in the way")
    with pytest.raises(StoreError, match="the code of gpt cannot be uploaded"):
        submit.submit(installation, view, caller=ME)
    with installation.store.read() as tx:
        assert tx.jobs() == []


@pytest.mark.usefixtures("elsewhere")
def test_a_submission_that_fails_leaves_no_code(
    installation: Installation, wanted: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_named: object) -> None:
        raise StoreError("the store is full")

    monkeypatch.setattr(submit, "add_jobs", fails)
    with pytest.raises(StoreError, match="full"):
        submit.submit(installation, _plan(installation, wanted), caller=ME)
    assert _stored(installation) == []


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("how", ["script", "entry", "package", "script behind a link"])
def test_code_that_lacks_the_program_of_its_job_is_refused(
    installation: Installation, wanted: JobSpec, folder: Path, how: str
) -> None:
    (folder / "here/train").mkdir(parents=True)
    (folder / "here/train/__init__.py").write_text("def main(**args): pass\n")
    (folder / "there").symlink_to("here")
    program, entry = {
        "script": ("train.py", None),
        "entry": ("train.py", "train:main"),
        "package": ("here/train/__init__.py", "here.train:main"),
        "script behind a link": ("there/train/__init__.py", None),
    }[how]
    train = replace(wanted.train, entry=entry, script=program if entry is None else None)
    assert code_of(installation, replace(wanted, train=train)) is not None
    (folder / ".tradewindignore").write_text("train.py\n__init__.py\n")
    with pytest.raises(UsageError, match=f"{program} is the job's program, but is excluded") as refused:
        code_of(installation, replace(wanted, train=train))
    assert refused.value.hint == f"add a line !{program} at the end of {folder}/.tradewindignore"


@pytest.mark.usefixtures("elsewhere")
def test_a_program_that_an_environment_has_need_not_be_in_the_code(
    installation: Installation, wanted: JobSpec, folder: Path
) -> None:
    train = replace(wanted.train, entry="installed.package:main")
    assert code_of(installation, replace(wanted, train=train)) is not None
