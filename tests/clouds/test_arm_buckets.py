"""The bucket of an installation on Azure, an account and a container: made, corrected, kept, removed, interrupted at
each call, through azure-mgmt-compute's pipeline and azure-storage-file-datalake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from providers.azure.session import Connections
from providers.bucket import Bucket
from providers.errors import PermissionDeniedError, ProviderError, SetupError, UnavailableError
from tests.clouds.arm import GROUP, SUBSCRIPTION
from tests.clouds.arm_account import Account, opened
from tests.clouds.azure import error
from tests.clouds.server import Fault, LoopbackServer, Request

NAME, ACCOUNT, CONTAINER = "myaccount/jobs", "myaccount", "jobs"
OURS = Bucket("azure", f"az://{CONTAINER}", "eastus", True)
CHANGES = ("PUT", "PATCH", "DELETE")


@pytest.fixture
def account(arm_clients: tuple[LoopbackServer, LoopbackServer, Connections]) -> Account:
    """A subscription with the networks of the installation."""
    found = opened(*arm_clients, "tw-1")
    found.connections = arm_clients[2]
    return found


def make(account: Account) -> list[str]:
    said: list[str] = []
    account.connect().make_bucket("tw-1", NAME, "eastus", said.append)
    return said


def remove(account: Account) -> list[str]:
    said: list[str] = []
    account.connect().remove_bucket("tw-1", NAME, said.append)
    return said


def changes(account: Account) -> list[Request]:
    return [each for each in account.server.requests if each.method in CHANGES]


def their_account(account: Account, group: str = "theirs", tags: dict[str, str] | None = None) -> dict[str, Any]:
    """A storage account that its user has made, with soft deletion."""
    path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}"
    body = b'{"location": "westus2", "tags": {}, "kind": "StorageV2", "sku": {}, "properties": {"isHnsEnabled": true}}'
    account.arm.storage("PUT", path, body)
    account.arm.storage.services[ACCOUNT] = {"deleteRetentionPolicy": {"enabled": True, "days": 7}}
    account.arm.storage.accounts[ACCOUNT]["tags"] = tags or {}
    return account.arm.storage.accounts[ACCOUNT]


def test_an_account_and_a_container_are_made_with_their_marks_in_the_same_calls(account: Account) -> None:
    assert account.connect().bucket("tw-1", NAME) is None
    said = make(account)
    assert [line.partition(" ")[0] for line in said] == ["storage", "container"]
    made = account.arm.storage.accounts[ACCOUNT]
    assert made["tags"] == {"tradewind-install": "tw-1"}
    assert (made["kind"], made["sku"], made["location"]) == ("StorageV2", {"name": "Standard_LRS"}, "eastus")
    assert f"/resourceGroups/{GROUP}/" in made["id"]
    properties = made["properties"]
    assert (properties["isHnsEnabled"], properties["allowBlobPublicAccess"]) == (True, False)
    assert properties["minimumTlsVersion"] == "TLS1_2"
    container = account.arm.storage.containers[ACCOUNT][CONTAINER]
    assert container["properties"] == {"publicAccess": "None", "metadata": {"tradewind_install": "tw-1"}}
    assert account.connect().bucket("tw-1", NAME) == OURS
    before = len(changes(account))
    assert make(account) == []
    assert len(changes(account)) == before
    assert len(remove(account)) == 2
    assert account.arm.storage.accounts == {}
    assert remove(account) == []


def test_an_account_takes_time_to_be_made(account: Account) -> None:
    account.arm.storage.takes_s = 30
    for _ in range(2):
        with pytest.raises(UnavailableError, match="still creating the storage account"):
            make(account)
    for again in (remove, lambda _: account.connect().bucket("tw-1", NAME)):
        with pytest.raises(UnavailableError, match="StorageAccountIsNotProvisioned"):
            again(account)
    account.clock.advance(30)
    assert [line.partition(" ")[0] for line in make(account)] == ["container"]


def test_the_rules_of_our_account_are_corrected_and_its_others_stay(account: Account) -> None:
    make(account)
    made, cors = account.arm.storage.accounts[ACCOUNT]["properties"], {"corsRules": [{"allowedOrigins": ["*"]}]}
    made |= {"allowBlobPublicAccess": True, "minimumTlsVersion": "TLS1_0"}
    on = {"enabled": True, "days": 7}
    account.arm.storage.services[ACCOUNT] = {
        "deleteRetentionPolicy": on,
        "containerDeleteRetentionPolicy": on,
        "isVersioningEnabled": True,
        "cors": cors,
    }
    found = account.connect().bucket("tw-1", NAME)
    assert found is not None
    assert len(found.missing) == 2
    assert len(make(account)) == 2
    assert account.connect().bucket("tw-1", NAME) == OURS
    assert account.arm.storage.services[ACCOUNT]["cors"] == cors


def test_in_an_account_of_the_user_only_the_container_is_made_and_removed(account: Account) -> None:
    theirs = their_account(account)
    assert make(account) == [f"container az://{CONTAINER} of the storage account {ACCOUNT} was made in westus2"]
    assert account.connect().bucket("tw-1", NAME) == Bucket("azure", f"az://{CONTAINER}", "westus2", True)
    assert account.arm.storage.services[ACCOUNT]["deleteRetentionPolicy"]["enabled"]
    assert len(remove(account)) == 1
    assert account.arm.storage.accounts == {ACCOUNT: theirs}
    assert account.arm.storage.containers[ACCOUNT] == {}


@pytest.mark.parametrize("mark", [{}, {"metadata": {"tradewind_install": "tw-2"}}])
def test_a_container_that_is_not_ours_is_used_as_it_is_and_never_removed(
    account: Account, mark: dict[str, object]
) -> None:
    their_account(account, GROUP)
    account.arm.storage.containers[ACCOUNT][CONTAINER] = {"name": CONTAINER, "properties": mark}
    assert make(account) == []
    assert account.connect().bucket("tw-1", NAME) == Bucket("azure", f"az://{CONTAINER}", "westus2", False)
    (line,) = remove(account)
    assert "is kept: Tradewind did not make it" in line
    assert line.endswith(f"az storage container delete --name {CONTAINER} --account-name {ACCOUNT} --auth-mode login")
    assert changes(account) == []


def test_a_container_that_holds_something_is_kept_with_its_account_and_the_resource_group(account: Account) -> None:
    make(account)
    account.arm.storage.files[CONTAINER] = {"checkpoints/1": 3_000_000}
    account.arm.storage.folders[CONTAINER] = ["checkpoints"]
    (line,) = remove(account)
    assert f"az://{CONTAINER} of the storage account {ACCOUNT} is kept: it holds 1 object, 3.0 MB; " in line
    assert "az storage container delete" in line
    account.arm.networks.groups[GROUP]["tags"] = {"tradewind-install": "tw-1"}
    account.connect().tear_down("tw-1", lambda _: None)
    assert list(account.arm.networks.groups) == [GROUP]
    assert list(account.arm.storage.accounts) == [ACCOUNT]


def test_folders_that_are_left_without_files_count_as_nothing(account: Account) -> None:
    make(account)
    account.arm.storage.folders[CONTAINER] = ["checkpoints", "checkpoints/job"]
    assert len(remove(account)) == 2


def test_what_may_not_be_listed_counts_as_full(account: Account) -> None:
    make(account)
    account.arm.storage.lists = False
    (line,) = remove(account)
    assert "Storage Blob Data Reader" in line
    assert CONTAINER in account.arm.storage.containers[ACCOUNT]


def test_a_container_that_its_store_does_not_answer_for_is_not_taken_for_an_empty_one(account: Account) -> None:
    make(account)
    account.arm.storage.files[CONTAINER] = {"checkpoints/1": 3_000_000}
    for code in ("ResourceNotFound", "FilesystemNotFound"):
        answer = replace(error(code, "there is nothing", 404), headers={"x-ms-error-code": code})
        account.server.faults.append(Fault(lambda request: request.path == f"/{CONTAINER}", 1, answer=answer))
    with pytest.raises(ProviderError, match="there is nothing"):
        remove(account)
    assert CONTAINER in account.arm.storage.containers[ACCOUNT]
    assert len(remove(account)) == 2


def test_an_account_with_something_else_in_it_is_kept(account: Account) -> None:
    make(account)
    account.arm.storage.shares[ACCOUNT] = ["home"]
    said = remove(account)
    assert f"storage account {ACCOUNT} is kept: it holds home; " in said[1]
    assert said[1].endswith(f"az storage account delete --name {ACCOUNT} --resource-group {GROUP}")
    assert account.arm.storage.containers[ACCOUNT] == {}


def test_a_name_that_another_subscription_has_is_a_named_error(account: Account) -> None:
    account.arm.storage.others.add(ACCOUNT)
    with pytest.raises(SetupError, match=f"the name {ACCOUNT} belongs to another account") as raised:
        make(account)
    assert raised.value.hint == "choose another name: AZURE_STORAGE_ACCOUNT_NAME"
    with pytest.raises(SetupError) as raised:
        account.connect().make_bucket("tw-1", "My_Account/jobs", "eastus", lambda _: None)
    assert "3 to 24 small letters and digits" in raised.value.hint


def test_a_container_that_is_being_deleted_is_made_when_that_is_over(account: Account) -> None:
    their_account(account)
    make(account)
    account.arm.storage.deleting_s = 30
    remove(account)
    with pytest.raises(UnavailableError):
        make(account)
    account.clock.advance(30)
    assert len(make(account)) == 1


@pytest.mark.parametrize("verb", [make, remove])
@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize(
    "how", [{"lost": True}, {"answer": error("InternalServerError", "no", 500)}], ids=["lost", "refused"]
)
def test_making_and_removing_go_on_after_a_death_at_any_call(
    account: Account, verb: Any, at: int, how: dict[str, Any]
) -> None:
    if verb is remove:
        make(account)
    calls = iter(range(1000))
    account.server.faults = [Fault(lambda _: next(calls) == at, 1, **how)]
    for _ in range(2):
        try:
            verb(account)
        except UnavailableError:
            continue
    account.server.faults = []
    if verb is remove:
        assert account.arm.storage.accounts == {}
    else:
        assert account.connect().bucket("tw-1", NAME) == OURS


def test_a_missing_permission_is_named(account: Account) -> None:
    account.fails(
        "PUT",
        "/storageAccounts/",
        answer=error(
            "AuthorizationFailed",
            "does not have authorization to perform action 'Microsoft.Storage/storageAccounts/write' over scope '/x'",
            403,
        ),
    )
    with pytest.raises(PermissionDeniedError) as raised:
        make(account)
    assert raised.value.action == "Microsoft.Storage/storageAccounts/write"


# --- versions ---

RULE = {"enabled": True, "type": "Lifecycle", "name": "old"}
DELETES = {"version": {"delete": {"daysAfterCreationGreaterThan": 2}}}


@pytest.mark.parametrize(
    ("change", "deletes"),
    [
        ({}, True),
        ({"enabled": False}, False),
        (
            {"definition": {"actions": DELETES, "filters": {"blobTypes": ["blockBlob"], "prefixMatch": ["jobs/tw"]}}},
            True,
        ),
        (
            {"definition": {"actions": DELETES, "filters": {"blobTypes": ["blockBlob"], "prefixMatch": ["logs/"]}}},
            False,
        ),
        ({"definition": {"actions": DELETES, "filters": {"blobTypes": ["appendBlob"]}}}, False),
        ({"definition": {"actions": {"baseBlob": {}}, "filters": {"blobTypes": ["blockBlob"]}}}, False),
    ],
)
def test_whether_a_policy_of_the_account_deletes_versions(
    account: Account, change: dict[str, Any], deletes: bool
) -> None:
    their_account(account)
    provider = account.connect()
    assert not provider.deletes_versions(NAME, "tw/x")
    plain = {"definition": {"actions": DELETES, "filters": {"blobTypes": ["blockBlob"]}}}
    account.arm.storage.policies[ACCOUNT] = {"rules": [{**RULE, **plain, **change}]}
    assert provider.deletes_versions(NAME, "tw/x") is deletes
    assert not provider.deletes_versions("another/jobs", "tw/x")
