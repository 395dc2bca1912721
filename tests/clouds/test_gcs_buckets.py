"""The bucket of an installation on Google Cloud Storage: made with all its rules, corrected, kept, removed, and
interrupted at each call."""

from __future__ import annotations

from typing import Any

import pytest

from providers.errors import FormatError, PermissionDeniedError, ProviderError, SetupError, UnavailableError
from providers.gcp.calls import CALLS
from providers.policy import Use, permissions
from tests.clouds.gce_project import Project
from tests.clouds.gcp import error
from tests.clouds.gcs_buckets import WEEK
from tests.clouds.server import Fault, Request, Response

NAME, REGION = "my-bucket", "europe-west4"
CHANGES = ("POST", "PATCH", "DELETE")


def quiet(_: str) -> None:
    return None


def make(project: Project, said: list[str] | None = None, install: str = "tw-1") -> None:
    project.connect().make_bucket(install, NAME, REGION, quiet if said is None else said.append)


def remove(project: Project, install: str = "tw-1") -> list[str]:
    said: list[str] = []
    project.connect().remove_bucket(install, NAME, said.append)
    return said


def changes(project: Project) -> list[Request]:
    return [each for each in project.server.requests if each.method in CHANGES and "/storage/" in each.path]


def test_a_bucket_is_made_by_one_call_that_sets_its_label_and_all_its_rules(project: Project) -> None:
    said: list[str] = []
    assert project.connect().bucket("tw-1", NAME) is None
    make(project, said)
    assert said == [f"bucket gs://{NAME} was made in {REGION}"]
    assert len(changes(project)) == 1
    row = project.gce.buckets.rows[NAME]
    assert row["labels"] == {"tradewind-install": "tw-1"}
    assert row["iamConfiguration"] == {
        "uniformBucketLevelAccess": {"enabled": True},
        "publicAccessPrevention": "enforced",
    }
    assert row["softDeletePolicy"] == {"retentionDurationSeconds": "0"}
    assert row["versioning"] == {"enabled": False}
    assert row["lifecycle"]["rule"] == [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 2}}]
    found = project.connect().bucket("tw-1", NAME)
    assert found is not None
    assert (found.url, found.region, found.own, found.missing) == (f"gs://{NAME}", REGION, True, ())
    make(project, said)
    assert len(changes(project)) == 1
    assert remove(project) == [f"bucket gs://{NAME} was removed"]
    assert remove(project) == []
    assert project.gce.buckets.rows == {}


def test_the_rules_of_our_bucket_are_corrected_and_others_of_it_stay(project: Project) -> None:
    make(project)
    row = project.gce.buckets.rows[NAME]
    theirs = {"action": {"type": "Delete"}, "condition": {"age": 90, "matchesPrefix": ["logs/"]}}
    row |= {"softDeletePolicy": WEEK, "versioning": {"enabled": True}, "lifecycle": {"rule": [theirs]}}
    row["iamConfiguration"] = {"publicAccessPrevention": "inherited"}
    found = project.connect().bucket("tw-1", NAME)
    assert found is not None
    assert len(found.missing) == 5
    make(project)
    assert project.connect().bucket("tw-1", NAME) == type(found)("gcp", f"gs://{NAME}", REGION, True)
    assert theirs in row["lifecycle"]["rule"]


@pytest.mark.parametrize("labels", [{}, {"tradewind-install": "tw-2"}])
def test_a_bucket_that_is_not_ours_is_used_as_it_is_and_never_removed(project: Project, labels: dict[str, str]) -> None:
    project.gce.buckets.rows[NAME] = {"name": NAME, "location": "US", "labels": labels, "softDeletePolicy": WEEK}
    make(project)
    found = project.connect().bucket("tw-1", NAME)
    assert found is not None
    assert (found.own, found.missing) == (False, ())
    (line,) = remove(project)
    assert "is kept: Tradewind did not make it" in line
    assert f"gcloud storage rm --recursive gs://{NAME}" in line
    assert changes(project) == []


@pytest.mark.parametrize(
    ("objects", "content"), [({"a": 10**6, "b": 5 * 10**5}, "2 objects, 1.5 MB"), ({"a": 0}, "1 object, 0.0 MB")]
)
def test_a_bucket_that_holds_something_is_kept_and_the_line_says_what(
    project: Project, objects: dict[str, int], content: str
) -> None:
    make(project)
    project.gce.buckets.objects[NAME] = objects
    (line,) = remove(project)
    assert f"gs://{NAME} is kept: it holds {content}; " in line
    assert line.endswith(f"gcloud storage rm --recursive gs://{NAME}")
    assert NAME in project.gce.buckets.rows


def test_a_full_bucket_is_not_counted_to_its_end(project: Project) -> None:
    make(project)
    project.gce.buckets.objects[NAME] = {f"k{number}": 1000 for number in range(1001)}
    (line,) = remove(project)
    assert "more than 1,000 objects" in line
    assert len([each for each in project.server.requests if each.path.endswith("/o")]) == 1


def test_what_is_written_while_it_is_removed_stays(project: Project) -> None:
    make(project)
    refused = error(409, "The bucket you tried to delete is not empty.", "conflict")
    project.fails("DELETE", f"/b/{NAME}", answer=refused)
    (line,) = remove(project)
    assert "is kept" in line


def test_a_name_that_somebody_else_has_is_a_named_error(project: Project) -> None:
    project.gce.buckets.others.add(NAME)
    with pytest.raises(SetupError, match=f"the name {NAME} belongs to another account") as raised:
        make(project)
    assert "choose another name: store_root" in raised.value.hint


def test_a_bucket_that_another_installation_makes_at_the_same_moment_is_not_said_to_be_made(project: Project) -> None:
    make(project, install="tw-2")
    project.fails("GET", f"/b/{NAME}", answer=error(404, "The specified bucket does not exist.", "notFound"))
    said: list[str] = []
    make(project, said)
    assert said == []
    assert project.gce.buckets.rows[NAME]["labels"] == {"tradewind-install": "tw-2"}


def test_a_bucket_that_may_not_be_looked_at_is_distinguished_from_one_of_somebody_else(project: Project) -> None:
    make(project)
    project.gce.granted = frozenset({"storage.buckets.create"})
    with pytest.raises(PermissionDeniedError) as raised:
        make(project)
    assert raised.value.action == "storage.buckets.get"
    assert "roles/storage.admin" in raised.value.hint


def test_a_project_without_a_billing_account_is_a_named_error(project: Project) -> None:
    text = "The billing account for the owning project is disabled in state absent"
    project.fails("POST", "/storage/v1/b", answer=error(403, text, "accountDisabled"))
    with pytest.raises(PermissionDeniedError, match="disabled in state absent") as raised:
        make(project)
    assert "link a billing account" in raised.value.hint


@pytest.mark.parametrize("body", [b"[]", b"null", b"3"])
def test_an_answer_that_is_no_object_is_a_named_error(project: Project, body: bytes) -> None:
    project.fails("GET", f"/b/{NAME}", answer=Response(200, body))
    with pytest.raises(FormatError, match="not a JSON object"):
        make(project)
    assert changes(project) == []


@pytest.mark.parametrize("verb", ["make", "remove"])
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("how", [{"lost": True}, {"answer": error(503, "no", "backendError")}], ids=["lost", "refused"])
def test_making_and_removing_go_on_after_a_death_at_any_call(
    project: Project, verb: str, at: int, how: dict[str, Any]
) -> None:
    if verb == "remove":
        make(project)
    calls = iter(range(1000))
    project.server.faults.append(Fault(lambda request: "/storage/" in request.path and next(calls) == at, 1, **how))
    for _ in range(2):
        try:
            make(project) if verb == "make" else remove(project)
        except UnavailableError:
            continue
    found = project.connect().bucket("tw-1", NAME)
    assert found is None if verb == "remove" else found is not None and not found.missing


def test_the_printed_role_is_enough_for_the_bucket_and_no_permission_is_superfluous(project: Project) -> None:
    needed = permissions(CALLS, Use.BUCKET)
    for missing in (None, *needed):
        project.gce.granted = None
        project.gce.buckets.rows.pop(NAME, None)
        project.gce.granted = frozenset(needed) - {missing}
        denied: set[str] = set()
        for step in ("make", "spoil", "make", "remove"):
            try:
                if step == "spoil" and NAME in project.gce.buckets.rows:
                    project.gce.buckets.rows[NAME]["versioning"] = {"enabled": True}
                elif step != "spoil":
                    make(project) if step == "make" else remove(project)
            except PermissionDeniedError as problem:
                denied.add(problem.action)
        assert denied == ({missing} if missing else set())


def test_public_access_that_somebody_allowed_needs_a_right_that_the_role_does_not_give(project: Project) -> None:
    make(project)
    project.gce.buckets.rows[NAME]["iamConfiguration"]["publicAccessPrevention"] = "inherited"
    project.gce.granted = frozenset(permissions(CALLS, Use.BUCKET))
    with pytest.raises(ProviderError) as raised:
        make(project)
    assert isinstance(raised.value, PermissionDeniedError)
    assert raised.value.action == "storage.buckets.setIamPolicy"


@pytest.mark.parametrize(
    ("text", "constraint", "scope", "hint"),
    [
        (
            f"'{REGION}' violates constraint 'constraints/gcp.resourceLocations'",
            "constraints/gcp.resourceLocations",
            "region",
            "name other regions",
        ),
        (
            "Constraint constraints/storage.softDeletePolicySeconds violated for projects/p",
            "constraints/storage.softDeletePolicySeconds",
            "account",
            "ask its administrator",
        ),
        (
            'Operation denied by custom org policy: ["customConstraints/custom.noBuckets": "none"]',
            "customConstraints/custom.noBuckets",
            "account",
            "exempted from customConstraints/custom.noBuckets",
        ),
    ],
)
def test_what_a_policy_of_the_organisation_forbids_is_denied_and_not_waited_for(
    project: Project, text: str, constraint: str, scope: str, hint: str
) -> None:
    project.fails("POST", "/storage/v1/b", answer=error(412, text, "conditionNotMet"))
    with pytest.raises(PermissionDeniedError, match="conditionNotMet") as raised:
        make(project)
    assert (raised.value.action, raised.value.scope) == (constraint, scope)
    assert hint in raised.value.hint
