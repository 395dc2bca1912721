from orchestrator.engine.migration.disk import COPIES, GIB, disk_gb
from orchestrator.model import DataSource


def data(*sizes: int | None) -> list[DataSource]:
    return [DataSource(f"/set/{number}", f"/set/{number}", size) for number, size in enumerate(sizes)]


def test_a_disk_has_room_for_all_data_and_two_checkpoints() -> None:
    assert disk_gb(data(100 * GIB, 20 * GIB), 3 * GIB) == 120 + COPIES * 3


def test_parts_of_a_gibibyte_are_rounded_up_together() -> None:
    assert disk_gb(data(1), 0) == 1
    assert disk_gb(data(GIB // 2), GIB // 4) == 1


def test_what_is_not_known_needs_no_room() -> None:
    assert disk_gb([], 0) == 0
    assert disk_gb(data(None), 0) == 0
