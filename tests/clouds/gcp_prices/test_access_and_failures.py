"""What market.md section 4 says of GCP: each failure, each refusal and each credential has its own name."""

from __future__ import annotations

import json
import os

import pytest
from google.oauth2.credentials import Credentials

from providers.errors import (
    AuthError,
    ClockSkewError,
    CutOffError,
    ExpiredCredentialsError,
    FormatError,
    NoCredentialsError,
    PermissionDeniedError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.gcp.permissions import access
from providers.gcp.prices.history import CapacityHistory
from providers.gcp.prices.list_prices import ListPrices
from providers.gcp.session import Connections
from tests.clouds.gcp import THROTTLED, GcpCloud, GcpZone, a2_skus, error
from tests.clouds.gcp_prices.conftest import A2, HERE, NOW, ZONE, cloud
from tests.clouds.server import Fault, Request, Response


def test_pages_that_lead_in_a_circle_are_an_error_and_not_a_loop(server, connections, poll):
    """A wide circle, too: a, b, a, b ..."""
    google = cloud(A2, page_rows=1, cards={"nvidia-tesla-t4": 4})

    def circle(request: Request) -> Response:
        answer = google(request)
        body = json.loads(answer.body)
        body["nextPageToken"] = {"": "1", "1": "0"}.get(request.query.get("pageToken", ""), "1")
        return Response(body=json.dumps(body).encode())

    for part in ("skus", "acceleratorTypes", "regions"):
        server.serve(lambda request, part=part: circle(request) if part in request.path else google(request))
        connections._zones = None
        failed = poll().error
        assert isinstance(failed, FormatError), part
        assert len(server.asked(part)) <= 4


def test_one_failing_zone_leaves_the_others_prices_and_marks_the_region(server, poll):
    server.serve(GcpCloud({ZONE: GcpZone([A2]), "us-central1-b": GcpZone([A2])}, a2_skus([HERE])))
    server.faults = [Fault(lambda request: "us-central1-a/machineTypes" in request.path, None, error(500, "x", "e"))]
    result = poll()
    assert {offer.zone for offer in result.offers} == {"us-central1-b"}
    assert isinstance(result.error, UnavailableError)


@pytest.mark.parametrize(
    ("fault", "kind", "hint"),
    [
        (Fault(lambda r: "machineTypes" in r.path, None, THROTTLED), ThrottledError, ""),
        (Fault(lambda r: "machineTypes" in r.path, None, hang=True), TimedOutError, ""),
        (Fault(lambda r: "machineTypes" in r.path, None, cut=True), CutOffError, ""),
        (Fault(lambda r: "skus" in r.path, None, cut=True), CutOffError, ""),
        (Fault(lambda r: "skus" in r.path, None, hang=True), TimedOutError, ""),
        (
            Fault(lambda r: "skus" in r.path, None, error(403, "not enabled", "x")),
            PermissionDeniedError,
            "GOOGLE_API_KEY",
        ),
    ],
    ids=["throttled", "hangs", "half", "half a catalog", "hanging catalog", "catalog denied"],
)
def test_each_failure_has_its_own_name(server, poll, fault, kind, hint):
    server.serve(cloud(A2))
    server.faults = [fault]
    failed = poll().error
    assert isinstance(failed, kind), repr(failed)
    assert hint in failed.hint


def test_a_denied_call_names_the_permission_and_the_command_that_grants_it(server, poll):
    server.serve(cloud(A2, denied={"machineTypes"}))
    failed = poll().error
    assert isinstance(failed, PermissionDeniedError)
    assert failed.action == "compute.machineTypes.list"
    assert "roles/compute.viewer" in failed.hint


def test_a_throttled_catalog_says_how_long_to_wait(server, poll):
    server.serve(cloud(A2))
    slow = error(429, "slow down", "rateLimitExceeded", {"Retry-After": "120"})
    server.faults = [Fault(lambda request: "skus" in request.path, None, slow)]
    failed = poll().error
    assert isinstance(failed, ThrottledError)
    assert failed.retry_after_s == 120


@pytest.mark.parametrize("path", ["skus", "machineTypes"])
@pytest.mark.parametrize(
    ("asked", "kept"), [("Mon, 21 Sep 2026 14:23:20 GMT", 600.0), ("inf", 21600.0), ("nan", None), ("-1", None)]
)
def test_google_may_write_the_wait_as_a_date_or_as_nonsense(server, poll, path, asked, kept):
    server.serve(cloud(A2))
    headers = {"Retry-After": asked, "Date": "Mon, 21 Sep 2026 14:13:20 GMT"}
    slow = error(429, "slow down", "rateLimitExceeded", headers)
    server.faults = [Fault(lambda request: path in request.path, None, slow)]
    failed = poll().error
    assert (type(failed), failed.retry_after_s) == (ThrottledError, kept)


def test_the_catalog_is_read_once_for_all_regions_and_its_failure_is_shared(server, connections, poll):
    zones = {f"r-{n}-a": GcpZone([A2]) for n in range(3)}
    server.serve(GcpCloud(zones, a2_skus([f"r-{n}" for n in range(3)])))
    source = ListPrices(billing=server.url, attempts=1, connections=connections)
    connections._zones = None
    assert [len(source.poll(region, NOW, None).points) for region in source.regions()] == [2, 2, 2]
    assert len(server.asked("skus")) == 1
    server.faults = [Fault(lambda request: "skus" in request.path, None, error(500, "x", "e"))]
    source = ListPrices(billing=server.url, attempts=1, connections=connections)
    assert all(isinstance(source.poll(f"r-{n}", NOW, None).error, UnavailableError) for n in range(3))
    assert len(server.asked("skus")) == 2


def test_an_api_key_goes_in_a_header_and_never_into_an_error(server, poll, environment):
    server.serve(cloud(A2, api_key="AIza-secret"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_API_KEY", "AIza-secret")
        assert len(poll().points) == 2
        server.faults = [Fault(lambda request: "skus" in request.path, None, error(500, "x", "e"))]
        assert "AIza" not in str(poll().error)
    assert isinstance(poll().error, UnavailableError)


REFUSALS = [
    error(400, "API key not valid. Please pass a valid API key.", "badRequest"),
    error(400, "API key expired. Please renew the API key.", "badRequest"),
    error(403, "Requests to this API method are blocked.", "forbidden"),
    error(401, "Request had invalid authentication credentials.", "authError"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=["no key", "expired", "blocked", "unknown"])
def test_a_key_that_is_refused_gives_way_to_the_credentials_once_and_for_all(server, environment, refusal):
    server.serve(cloud(A2, api_key="AIza-right", bearer="ya29"))
    server.faults = [Fault(lambda request: "X-Goog-Api-Key" in request.headers, None, refusal)]
    mine = Connections("p", server.url, call_s=1.0, patience_s=0.0, credentials=Credentials("ya29"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_API_KEY", "AIza-old\n")
        result = ListPrices(billing=server.url, attempts=1, connections=mine).poll(HERE, NOW, None)
        reported = access(mine, server.url)[-1]
    assert (result.error, len(result.points)) == (None, 2)
    keys = [request.headers.get("X-Goog-Api-Key") for request in server.asked("skus")]
    assert keys[0] == "AIza-old"
    assert keys.count("AIza-old") == 2, "once by the source, once by the question what may be read"
    assert (reported.works, reported.detail) == (
        True,
        "cloudbilling.skus.list, with the credentials: GOOGLE_API_KEY was rejected",
    )


def test_a_key_and_credentials_that_are_both_refused_are_both_named(server, poll, environment):
    server.serve(cloud(A2, api_key="AIza-right"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_API_KEY", "AIza-old")
        failed = poll().error
        assert isinstance(failed, PermissionDeniedError)
        assert "GOOGLE_API_KEY was rejected, too" in str(failed)
        assert "AIza" not in str(failed)
        server.faults = [Fault(lambda request: "skus" in request.path, None, error(400, "Invalid page size", "x"))]
        assert "Invalid page size" in str(poll().error), "a bad request is no bad key"


def service_account(token_uri: str):
    """Credentials that google-auth itself refreshes at `token_uri`."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from google.oauth2 import service_account as library

    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {"client_email": "x@p.iam", "private_key": pem.decode(), "token_uri": token_uri, "project_id": "p"}
    return library.Credentials.from_service_account_info(info, scopes=["x"])


@pytest.mark.parametrize(
    ("description", "kind", "hint"),
    [
        ("Invalid JWT: Token must be in a reasonable timeframe. Check your iat", ClockSkewError, "clock"),
        ("Account has been deleted", AuthError, "gcloud auth"),
        ("Bad Request", ExpiredCredentialsError, "gcloud auth"),
    ],
)
def test_a_token_that_is_refused_is_a_wrong_clock_or_an_old_account(server, poll, description, kind, hint):
    body = json.dumps({"error": "invalid_grant", "error_description": description}).encode()
    server.serve(cloud(A2))
    server.faults = [Fault(lambda request: request.path == "/token", None, Response(400, body))]
    mine = Connections("p", server.url, call_s=1.0, patience_s=0.0, credentials=service_account(f"{server.url}/token"))
    failed = ListPrices(billing=server.url, attempts=1, connections=mine).poll(HERE, NOW, None).error
    assert isinstance(failed, kind)
    assert hint in failed.hint


def test_without_credentials_the_error_says_how_to_get_them(environment, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
        with pytest.raises(NoCredentialsError) as caught:
            ListPrices().regions()
    assert "gcloud auth application-default login" in caught.value.hint


@pytest.mark.parametrize("key", ["\u043a\u043b\u044e\u0447", "AIza\nX-Evil: 1", "AIza\x00"])
def test_a_key_that_no_header_can_hold_is_a_refused_one(server, poll, environment, key):
    server.serve(cloud(A2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", {**os.environ, "GOOGLE_API_KEY": key})
        assert (poll().error, len(server.asked("skus"))) == (None, 1)
    assert not {"X-Goog-Api-Key", "X-Evil"} & set(server.requests[-1].headers)


def test_a_project_without_access_to_history_loses_only_that(server, connections, poll):
    server.serve(cloud(A2, denied={"capacityHistory"}))
    assert isinstance(CapacityHistory(connections=connections).poll(HERE, NOW, None).error, PermissionDeniedError)
    assert len(poll().points) == 2


def test_the_report_says_what_the_account_may_read(server, connections, poll):
    server.serve(cloud(A2, denied={"acceleratorTypes"}))
    found = access(connections, server.url)
    assert [finding.what for finding in found if not finding.works] == ["accelerators"]
    assert "roles/compute.viewer" in found[3].remedy


def test_googles_own_future_polls_an_operation_at_another_machine_so_it_must_not_be_used(server):
    """clouds.md 0.5: the second client is built without the endpoint. The guard of the tests sees it."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import compute_v1

    operation = b'{"name": "op", "status": "RUNNING", "zone": "zones/z"}'
    server.serve(lambda request: Response(body=operation))
    client = compute_v1.InstancesClient(credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url})
    started = client.insert(project="p", zone="z", instance_resource={"name": "vm"})
    with pytest.raises(Exception, match=r"own addresses|googleapis"):
        started.done(retry=None)
