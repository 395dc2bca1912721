"""A catalogue with a mistake: every one is named with file, line, field and remedy; none is skipped or let through."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers.catalog import CatalogError, Finding, load, read, verify, verify_own
from providers.catalog.files import DATA, day_ms

NOW_MS = day_ms("2026-11-21") or 0
OWN_HEAD = "provider,region,zone,instance_type,capacity,usd_per_hour,date,source,gpu,gpu_count,gpu_memory_gb\n"
GOOD = "myco,eu,,box,spot,3.5,2026-11-01,price page,H100,2,80"


def own(tmp_path: Path, *rows: str, head: str = OWN_HEAD) -> Path:
    path = tmp_path / "my.csv"
    path.write_text(head + "".join(f"{row}\n" for row in rows))
    return path


def judged(path: Path) -> tuple[Finding, ...]:
    return verify_own(path, load(), NOW_MS).findings


def test_a_good_file_is_good(tmp_path: Path) -> None:
    verdict = verify_own(own(tmp_path, GOOD), load(), NOW_MS)
    assert (verdict.checked, verdict.findings) == (1, ())


BAD_FIELDS = {
    "usd_per_hour": ["", "0", "-1", "nan", "NaN", "inf", "-inf", "1e400", "1e300", "1e-12", "1e-320", "three", "0x10"],
    "date": [
        "",
        "yesterday",
        "2026-13-01",
        "2026-02-30",
        "20261101",
        "2026-W40-1",
        "01/11/2026",
        "0001-01-01",
        "9999-12-31",
    ],
    "capacity": ["", "SPOT", "on-demand", "reserved"],
    "provider": ["", "  ", "my\x1b[2Jco", "my\u202eco", "m" * 60_000],
    "region": [""],
    "instance_type": [""],
    "source": ["", " "],
    "gpu": ["", "H900", "H1000", "TPU"],
    "gpu_count": ["", "0", "-1", "1.5", "many", "nan", "1e300"],
    "gpu_memory_gb": ["-1", "nan", "lots"],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in BAD_FIELDS.items() for value in values]
)
def test_each_bad_field_is_named_with_its_line_and_a_remedy(tmp_path: Path, field: str, value: str) -> None:
    names = OWN_HEAD.strip().split(",")
    cells = GOOD.split(",")
    cells[names.index(field)] = value
    path = own(tmp_path, GOOD.replace("box", "other"), ",".join(cells))
    with pytest.raises(CatalogError) as caught:
        load().extended(path)
    (finding,) = caught.value.findings
    assert (finding.file, finding.line, finding.field) == (str(path), 3, field)
    assert finding.remedy
    assert str(finding) in str(caught.value)
    assert judged(path) == (finding,)


def test_several_mistakes_are_all_named_at_once(tmp_path: Path) -> None:
    path = own(tmp_path, GOOD.replace("3.5", "NaN").replace("spot", "spt"), GOOD.replace("H100", "H10O"))
    assert [(found.line, found.field) for found in judged(path)] == [(2, "capacity"), (2, "usd_per_hour"), (3, "gpu")]


def test_a_near_miss_of_a_name_is_suggested(tmp_path: Path) -> None:
    (finding,) = judged(own(tmp_path, GOOD.replace("H100", "H10O")))
    assert finding.remedy == 'did you mean "H100"?'


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "is missing"),
        ("provider,region\n", 1, "is provider,region"),
        (OWN_HEAD.replace("zone", "zome"), 1, "zome"),
        (OWN_HEAD.replace("zone", "region"), 1, "region,region"),
        (OWN_HEAD + "a,b\n", 2, "has 2 fields, not 11"),
        (OWN_HEAD + GOOD + ",more\n", 2, "has 12 fields, not 11"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = own(tmp_path, head=text)
    (finding,) = judged(path)
    assert finding.line == line
    assert what in finding.message


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_bytes(OWN_HEAD.encode() + b"\xff\xfe\x00\n")
    assert "not CSV in UTF-8" in judged(tmp_path / "my.csv")[0].message
    assert "cannot be read" in judged(tmp_path / "none.csv")[0].message
    assert "cannot be read" in judged(tmp_path)[0].message


def test_a_byte_order_mark_and_foreign_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_bytes(("\ufeff" + OWN_HEAD + GOOD).replace("\n", "\r\n").encode())
    assert judged(path) == ()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet=st.sampled_from(',"\n\r0123456789.-easpot \ud800'.replace("\ud800", "\x00")), max_size=200)
)
def test_no_text_whatever_breaks_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "my.csv"
    path.write_text(OWN_HEAD + text)
    for finding in judged(path):
        assert finding.file == str(path)
        assert finding.remedy


@pytest.mark.parametrize(
    ("rows", "line", "field", "what"),
    [
        ([GOOD.replace("3.5", "3000")], 2, "usd_per_hour", "not plausible"),
        ([GOOD.replace("3.5", "0.01")], 2, "usd_per_hour", "not plausible"),
        ([GOOD.replace("2026-11-01", "2026-12-01")], 2, "date", "future"),
        ([GOOD, GOOD.replace("spot,3.5", "on_demand,3.4")], 2, "usd_per_hour", "as much as on-demand"),
        ([GOOD, GOOD.replace("spot,3.5", "on_demand,3.6")], 2, "usd_per_hour", "95% of on-demand"),
        ([GOOD, GOOD], 3, "", "a second time"),
        ([GOOD, GOOD.replace("eu", "us").replace(",2,80", ",4,80")], 3, "gpu", "4 x H100 here, 2 x H100 elsewhere"),
        ([GOOD.replace(",2,80", ",2,40")], 2, "gpu_memory_gb", "40 GB, but a H100 has 80 GB"),
        ([GOOD.replace(",2,80", ",64,80").replace("3.5", "99")], 2, "gpu_count", "64 GPUs in one machine"),
        (["aws,eu-west-1,,p3.2xlarge,spot,0.9,2026-11-01,x,H100,1,"], 2, "gpu", "1 x H100 here, 1 x V100 elsewhere"),
        (["aws,us-east-1,,p5.4xlarge,spot,6.88,2026-11-01,x,,,"], 2, "usd_per_hour", "as much as on-demand"),
        (["gcp,africa-south1,,a3-highgpu-8g,spot,9.1,2026-11-01,x,,,"], 2, "region", "not known to exist"),
        (["azure,eastus,,Standard_NC6s_v3,spot,0.3,2026-11-01,x,,,"], 2, "instance_type", "retired on 2025-09-30"),
    ],
)
def test_what_no_single_field_shows(tmp_path: Path, rows: list[str], line: int, field: str, what: str) -> None:
    path = own(tmp_path, *rows)
    (finding,) = judged(path)
    assert (finding.file, finding.line, finding.field) == (str(path), line, field)
    assert what in finding.message
    assert finding.remedy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def edit(path: Path, change: Callable[[list[str]], object]) -> None:
    rows = path.read_text().splitlines()
    change(rows)
    path.write_text("\n".join(rows) + "\n")


AT_HOME = "gcp,us-east1,,a2-highgpu-1g"
SPOILT: dict[str, tuple[str, str, str, str, str]] = {
    "no publisher": ("sources.csv", "lambda-docs,Lambda,", "lambda-docs,,", "publisher", "is empty"),
    "no licence": ("sources.csv", ",2025-11-16,MIT,", ",2025-11-16,,", "licence", "is empty"),
    "no date": ("sources.csv", ",2025-11-16,MIT", ",,MIT", "valid_on", "is empty"),
    "source of tomorrow": ("sources.csv", ",2025-11-16,MIT", ",2027-11-16,MIT", "valid_on", "future"),
    "unknown source": ("prices_small.csv", ",skypilot-nebius", ",hearsay", "source", '"hearsay" is not in sources.csv'),
    "unknown type": ("prices_small.csv", ",gpu_1x_a6000,", ",gpu_1x_a7000,", "instance_type", "not in instance_types"),
    "unknown GPU": ("instance_types.csv", ",K80,1,", ",K8O,1,", "gpu", '"K8O" is not a known GPU'),
    "other memory": ("instance_types.csv", ",B300,8,268,", ",B300,8,180,", "gpu_memory_gb", "180 GB, but a B300 has"),
    "negative egress": ("egress.csv", "gcp,*,zone,0.01", "gcp,*,zone,-0.01", "usd_per_gb", 'is "-0.01"'),
    "bucket upside down": ("interruptions_aws.csv", ",0,5,", ",6,5,", "high_percent", "6.0 to 5.0"),
    "no such flag": ("flagged.csv", ",phantom", ",ghost", "flag", 'is "ghost"'),
    "phantom that is none": ("flagged.csv", "gcp,africa-south1,,a2-highgpu-1g", AT_HOME, "flag", "known_regions.csv"),
    "half a chip": ("accelerators.csv", ",TPU-v6e,8,", ",TPU-v6e,0.5,", "chips", 'is "0.5"'),
    "a slice for nothing": ("accelerators.csv", ",on_demand,21.6,", ",on_demand,0,", "usd_per_hour", 'is "0"'),
    "a chip that is a GPU": ("accelerators.csv", ",Trainium2,16,", ",H200,16,", "accelerator", "H200 is a GPU"),
    "a slice priced twice": ("accelerators.csv", ",tpu-v6e-4,", ",tpu-v6e-8,", "", "tpu-v6e-8 is priced twice"),
    "retired too soon": ("instance_types.csv", ",,2023-09-06,", ",,,", "flag", "has no retired_on"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_verify_finds_what_is_wrong_in_the_catalogue_itself(folder: Path, name: str) -> None:
    file, was, becomes, field, what = SPOILT[name]
    text = (folder / file).read_text()
    assert was in text
    (folder / file).write_text(text.replace(was, becomes, 1))
    line = text[: text.index(was)].count("\n") + 1
    found = verify(NOW_MS, folder).findings
    assert any(each.field == field and what in each.message and each.remedy for each in found), found
    if field not in ("flag", "") or name == "no such flag":
        assert (found[0].file, found[0].line) == (file, line)


def test_an_unspoilt_copy_is_sound(folder: Path) -> None:
    assert verify(NOW_MS, folder).findings == ()
    assert len(read(folder).offers()) == len(load().offers())


def test_a_missing_file_is_reported(folder: Path) -> None:
    (folder / "sources.csv").unlink()
    with pytest.raises(CatalogError, match=r"sources.csv: cannot be read"):
        read(folder)


def test_a_duplicate_row_is_reported(folder: Path) -> None:
    edit(folder / "prices_gcp.csv", lambda rows: rows.append(rows[1]))
    (finding,) = verify(NOW_MS, folder).findings
    assert "a second time" in finding.message
    assert finding.remedy == "keep this line or prices_gcp.csv:2"


def test_a_duplicate_egress_price_is_reported(folder: Path) -> None:
    edit(folder / "egress.csv", lambda rows: rows.append(rows[1]))
    (finding,) = verify(NOW_MS, folder).findings
    assert "duplicate egress rate" in finding.message


def test_a_flagged_row_that_is_also_offered_is_reported(folder: Path) -> None:
    offered = (folder / "prices_gcp.csv").read_text().splitlines()[1]
    edit(folder / "flagged.csv", lambda rows: rows.append(f"{offered},withdrawn"))
    (finding,) = verify(NOW_MS, folder).findings
    assert "is also an offer at prices_gcp.csv:2" in finding.message
