"""A sample of benchmarks/integrity.py: what was damaged is noticed, and an intact checkpoint is restored."""

from benchmarks.integrity import measured


def test_damage_of_any_kind_is_noticed_and_got_over(tmp_path):
    found = measured(tmp_path, 150, seed=7)
    assert found.wrong == []
    assert sum(found.times.values()) == 150
    assert {what.partition(" ")[2] for what in found.times} == {"chunks", "manifests", "parts", "fence"}
    assert {what.partition(" ")[0] for what in found.times} == {"flipped", "cut", "missing", "duplicated", "swapped"}
    assert found.older > 10
    assert found.repaired > 10
