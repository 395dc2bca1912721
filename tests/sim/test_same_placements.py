"""Live = simulated: the control plane and the replay decide the same history alike (benchmarks.same_placements)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.same_placements import History, Home, compare
from tests.rig import ScratchDatabase
from tests.shared_data import shared


def test_the_replay_places_and_forecasts_as_the_control_plane_does(
    tmp_path: Path, databases: list[ScratchDatabase]
) -> None:
    found = compare(Home(tmp_path / "home", databases[0], shared("market"), 1), 4, 0.2)
    assert found.differ == []
    assert found.placed >= 4
    assert found.decisions > 30


class Deaf(Home):
    """Its replay does not hear of losses."""

    def history(self) -> History:
        heard = super().history()
        return replace(heard, points=[point for point in heard.points if point.kind != "lost"])


def test_a_replay_that_does_not_hear_of_losses_differs(tmp_path: Path, databases: list[ScratchDatabase]) -> None:
    assert compare(Deaf(tmp_path / "home", databases[0], shared("market"), 1), 2, 0.1).differ
