"""Schemathesis asks every address of the dashboard's OpenAPI for what nobody would: no twin answers otherwise than
documented, and the page of the same figures is a page, not a failure, and executes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.web.dashboard import Served

load_all_checks()
TWINS = 25
pages = {
    f"{path}.json": path
    for path in ("/jobs", "/costs", "/ledger", "/market", "/market/frontier", "/migrations", "/plans", "/health")
}
pages |= {"/overview.json": "/", "/policies.json": "/policies", "/jobs/{ref}.json": "/jobs/{ref}"}


@pytest.fixture(scope="module")
def operations(fleet: Served) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{fleet.url}/openapi.json")
    return [found.ok() for found in schema.get_all_operations()]


def test_every_twin_is_documented(operations: list[Any]) -> None:
    assert len(operations) == TWINS
    assert set(pages) <= {each.path for each in operations}


@pytest.mark.parametrize("number", range(TWINS))
def test_whatever_is_asked_the_answer_is_as_documented(fleet: Served, operations: list[Any], number: int) -> None:
    operation = operations[number]

    @settings(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        answer = case.call()
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])  # not every text is a month
        assert answer.status_code < 500, answer.text
        if (path := pages.get(operation.path)) is not None:
            address = case.as_transport_kwargs()
            page = requests.get(fleet.url + path.format(**(case.path_parameters or {})), params=address["params"])
            assert page.status_code == answer.status_code
            assert page.headers["content-type"].startswith("text/html")
            assert "<script>document" not in page.text

    ask()
