"""The options of price sources: what the configuration accepts is what the sources take."""

from __future__ import annotations

import importlib
import inspect

import pytest

from providers.collect.sources import KINDS, wrong_options

OURS = {"name", "connections", "only"}
"""Parameters that no configuration sets."""


def parameters(path: str) -> set[str]:
    """The names that a source takes, including those that it passes on to its bases."""
    module, _, name = path.partition(":")
    kind = getattr(importlib.import_module(module), name)
    makers = [vars(each)["__init__"] for each in kind.__mro__[:-1] if "__init__" in vars(each)]
    return {
        each.name
        for make in makers
        for each in inspect.signature(make).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    }


@pytest.mark.parametrize("name", KINDS)
def test_the_options_of_a_source_are_its_parameters_and_each_example_is_accepted(name: str) -> None:
    options = KINDS[name].options
    assert set(options) == parameters(KINDS[name].path) - OURS
    assert list(wrong_options(name, options)) == []


@pytest.mark.parametrize("name", KINDS)
def test_no_option_takes_a_value_of_another_type(name: str) -> None:
    wrong = list(wrong_options(name, dict.fromkeys(KINDS[name].options, object())))
    assert [option for option, _, _ in wrong] == list(KINDS[name].options)
    assert all(message.startswith("must be ") and option in remedy for option, message, remedy in wrong)
