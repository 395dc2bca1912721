"""Ids made from content: for plans and entries, which must come out the same when they are made again."""

from __future__ import annotations

import random

from orchestrator.model import derived_id, new_id


def test_equal_content_gives_the_equal_id_and_other_content_another():
    assert derived_id("plan", 1000, b"x") == derived_id("plan", 1000, b"x")
    assert derived_id("plan", 1000, b"x") != derived_id("plan", 1000, b"y")


def test_derived_ids_sort_by_time_among_the_random_ones():
    ids = [derived_id("plan", 1, b"z"), new_id("plan", 2, random.Random(1)), derived_id("plan", 3, b"a")]
    assert sorted(ids) == ids
    assert len({len(i) for i in ids}) == 1
