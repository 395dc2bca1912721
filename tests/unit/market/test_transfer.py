"""Bytes cost nothing inside a region, little inside a provider, more across providers."""

from __future__ import annotations

from orchestrator.market import egress_nano_usd
from providers.money import usd

GB = 10**9


def test_a_region_is_free():
    assert egress_nano_usd(("aws", "us-east-1"), ("aws", "us-east-1"), 10**15) == 0


def test_within_a_provider_its_rate_between_regions_holds():
    assert egress_nano_usd(("aws", "us-east-1"), ("aws", "eu-west-1"), 100 * GB) == usd(2)


def test_across_providers_the_source_charges_its_internet_rate():
    assert egress_nano_usd(("gcp", "us-central1"), ("aws", "us-east-1"), 100 * GB) == usd(12)
    assert egress_nano_usd(("aws", "us-east-1"), ("gcp", "us-central1"), 100 * GB) == usd(9)


def test_equal_region_names_of_two_providers_are_two_places():
    assert egress_nano_usd(("local", "eu-1"), ("fake", "eu-1"), 100 * GB) > 0


def test_an_unknown_provider_pays_a_typical_rate():
    assert egress_nano_usd(("neo", "a"), ("neo", "b"), 100 * GB) == usd(5)
    assert egress_nano_usd(("neo", "a"), ("aws", "b"), 100 * GB) == usd(9)
