"""Arguments of a wrong type, given to every method of the SDK: each is a usage error that names the argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from orchestrator import Client, TradewindError, UsageError

RIGHT: dict[str, object] = {"str": "x", "int": 1, "float": 1.0, "str | Path": "x", "str | float": "1"}
NAMESPACES = [name for name, value in vars(Client).items() if isinstance(value, cached_property)]


def _methods(client: Client) -> list[tuple[str, Callable[..., object]]]:
    """Every public method, with its name from the client on."""
    return [
        (f"{space}.{name}", method)
        for space in NAMESPACES
        for name, method in inspect.getmembers(getattr(client, space), inspect.ismethod)
        if not name.startswith("_")
    ]


def _others(parameters: list[inspect.Parameter], but: str) -> dict[str, object]:
    """Something for each parameter that must be given, and is looked at after the one in question."""
    needed = [each for each in parameters if each.default is inspect.Parameter.empty and each.name != but]
    return {each.name: RIGHT.get(each.annotation, "x") for each in needed if each.kind is not each.VAR_POSITIONAL}


def test_every_argument_of_a_wrong_type_is_a_usage_error(client: Client) -> None:
    tried = 0
    for name, method in _methods(client):
        parameters = list(inspect.signature(method).parameters.values())
        for wrong in parameters:
            given = {} if wrong.kind is wrong.VAR_POSITIONAL else {wrong.name: object()}
            several = [object()] if wrong.kind is wrong.VAR_POSITIONAL else []
            with pytest.raises(UsageError) as caught:
                method(*several, **_others(parameters, wrong.name), **given)
            assert caught.value.hint, name
            if "Work" not in wrong.annotation:  # of that a job is expected, which says more
                named = str(caught.value).partition(" of ")[0]
                assert named in {wrong.name, *(each.name for each in parameters if each.annotation not in RIGHT)}
            tried += 1
    assert tried > 100


WRONG: list[Callable[[Client, Any], object]] = [
    lambda client, anything: client.jobs.wait("gpt", timeout_s=anything("3")),
    lambda client, anything: client.jobs.wait("gpt", timeout_s=anything(True)),
    lambda client, anything: client.jobs.wait("gpt", timeout_s=float("nan")),
    lambda client, anything: client.jobs.logs("gpt", rank=anything("0")),
    lambda client, anything: client.jobs.fetch("gpt", paths=anything([1])),
    lambda client, anything: client.jobs.fetch("gpt", paths=anything(b"loss.csv")),
    lambda client, anything: client.reports.get(month=anything(11)),
    lambda client, anything: client.reports.moves(since=anything(3)),
    lambda client, anything: client.groups.submit("sweep.yaml", token=anything(5)),
    lambda client, anything: client.checkpoints.prune("gpt", keep=anything("a")),
    lambda client, anything: client.prices.collect(feeds=anything(["feed.csv"])),
]


@pytest.mark.parametrize("call", WRONG)
def test_a_simple_value_of_another_type_is_a_usage_error(
    client: Client, work: dict[str, Any], call: Callable[[Client, Any], object]
) -> None:
    client.jobs.submit(work)
    with pytest.raises(UsageError):
        call(client, lambda value: value)


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1.0, 0])
def test_an_amount_that_is_no_number_of_dollars_is_refused_in_words(
    client: Client, work: dict[str, Any], amount: float
) -> None:
    job = client.jobs.submit(work)
    with pytest.raises(UsageError, match=r"is not a number|is not an amount of money|must be more than 0") as refused:
        client.jobs.set_budget(job.id, amount)
    assert re.search(r"such as (2\.5|\"2\.50\"|\"250 USD\")", refused.value.hint)


@pytest.mark.parametrize(
    "call", [lambda c: c.jobs.wait("gpt", timeout_s=-1), lambda c: c.speed.profile({}, timeout_s=-2.5)]
)
def test_a_negative_time_is_refused_before_anything_is_done(client: Client, call: Callable[[Client], object]) -> None:
    with pytest.raises(UsageError, match=r"timeout_s of \w+\(\) cannot be -") as refused:
        call(client)
    assert refused.value.hint == "give a number of seconds, 0 or more"


def test_a_wrong_word_is_answered_with_the_nearest_and_all_valid_ones(client: Client) -> None:
    by: Any = "provider"
    with pytest.raises(UsageError, match="'provider' is not a grouping") as refused:
        client.reports.costs(by)
    assert refused.value.hint.startswith("one of project, owner")
    by = "montg"
    with pytest.raises(UsageError, match="'montg' is not a grouping") as refused:
        client.reports.costs(by)
    assert refused.value.hint.startswith('did you mean "month"? All are: project, owner')
    with pytest.raises(UsageError, match='there is no provider "awz"') as refused:
        client.networks.set_up("awz")
    assert refused.value.hint.startswith('did you mean "aws"? All are: aws, azure')


def test_a_value_that_is_none_of_the_valid_ones_is_refused_with_their_names(client: Client) -> None:
    choices = {
        (name, parameter): get_args(kind)
        for name, method in _methods(client)
        for parameter, kind in get_type_hints(inspect.unwrap(method), localns={"Work": object}).items()
        if get_origin(kind) is Literal
    }
    choices["events.list", "kinds"] = ("job.submitted", "run.preempted", "migration.cutover", "run.stalled")
    methods = dict(_methods(client))
    assert ("reports.market", "unit") in choices
    for (name, parameter), valid in choices.items():
        with pytest.raises(UsageError, match="'zzz' is not a") as refused:
            methods[name](**{parameter: "zzz"})
        assert set(valid) <= set(re.findall(r"[\w.]+", refused.value.hint)), name


def test_one_value_stands_for_itself_where_several_may_be_given(
    client: Client, work: dict[str, Any], tmp_path: Path
) -> None:
    job = client.jobs.submit(work)
    (event,) = client.events.list(job.id, kinds="job.submitted").events
    assert event.kind == "job.submitted"
    assert client.events.list(job.id, kinds={"job.submitted"}).events == (event,)
    assert {offer.provider for offer in client.offers.list(cloud="local", region="south").offers} == {"local"}
    assert client.reports.names(job.id) == {job.id: "gpt"}
    with pytest.raises(TradewindError, match=r"loss\.csv"):
        client.prices.import_tables(tmp_path / "loss.csv")
    with pytest.raises(TradewindError, match="local"):
        client.networks.list("local")


def test_numbers_of_other_libraries_and_paths_of_other_classes_are_taken(client: Client, work: dict[str, Any]) -> None:
    import numpy as np

    class Elsewhere:
        def __fspath__(self) -> str:
            return "copy.db"

    client.jobs.submit(work)
    with pytest.raises(TradewindError, match="still queued"):
        client.jobs.wait("gpt", timeout_s=np.float32(0))
    anything: Any = Elsewhere()
    client.store.backup(anything)
    assert Path("copy.db").exists()


def test_a_call_that_does_not_fit_the_signature_is_pythons_own_error(client: Client) -> None:
    anything: Any = client.jobs
    with pytest.raises(TypeError, match=r"Jobs\.wait\(\) got an unexpected keyword argument 'timeout'"):
        anything.wait("gpt", timeout=3)
