"""`offers` and `plan --anywhere` as a user meets them: text, exit codes, and what they do not load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]


def test_offers_show_prices_with_age_and_source_and_which_clouds_are_not_enabled(tradewind: Run) -> None:
    result = tradewind("offers", "--gpu", "H100:8", "--spot", "--limit", "2")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[:5] == ["where", "machine", "gpu", "type", "price"]
    assert lines[0].split()[-2:] == ["age", "source"]
    assert "8xH100" in lines[1]
    assert "not enabled here: aws, gcp" in result.stdout
    assert "more: tradewind offers --gpu H100:8 --spot --limit " in result.stdout


def test_offers_for_a_job_show_what_it_would_cost_there(tradewind: Run) -> None:
    result = tradewind("offers", "--for", "job.yaml", "--cloud", "aws", "--cloud", "gcp", "--limit", "3")
    assert result.exit_code == 0, result.output
    assert "$/1k steps" in result.stdout
    assert "ranked for fresh; speed: " in result.stdout
    assert "left out for fresh" in result.stdout
    grouped = tradewind("offers", "--group-by", "region", "--for", "job.yaml", "--limit", "3", "--output", "json")
    assert len(json.loads(grouped.stdout)["groups"]) == 3


def test_offers_for_a_job_name_the_setting_of_the_limit_that_leaves_some_out(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, value in (("max_usd_per_hour", "2"), ("max_instances", "0")):
        with monkeypatch.context() as patch:
            patch.setenv(f"TRADEWIND_LIMITS_{setting.upper()}", value)
            result = tradewind("offers", "--for", "job.yaml", "--limit", "3")
        assert f"your limits (limits.{setting})" in " ".join(result.output.split())


def test_a_gpu_without_its_memory_means_all_of_them(tradewind: Run) -> None:
    listed = json.loads(tradewind("offers", "--gpu", "A100:8", "--output", "json").stdout)["offers"]
    assert {offer["gpu"] for offer in listed} == {"A100-40GB", "A100-80GB"}


def test_a_filter_that_leaves_nothing_ends_with_a_usage_error(tradewind: Run) -> None:
    result = tradewind("offers", "--gpu", "H100:8", "--max-price", "0.01")
    assert result.exit_code == 2
    assert "--max-price 0.01 matches no offer" in result.stderr
    assert "hint: the cheapest is $" in result.stderr


def test_a_plan_anywhere_says_what_to_enable_and_shows_the_front_and_the_picks(tradewind: Run, tmp_path: Path) -> None:
    file = Path("job.yaml")
    assert "Tradewind cannot rent at verda" in tradewind("plan", "job.yaml", "--anywhere").stdout
    file.write_text(file.read_text() + "where: {clouds: [aws, gcp]}\n")
    result = tradewind("plan", "job.yaml", "--anywhere")
    assert result.exit_code == 0, result.output
    assert "list prices" in result.stdout
    assert "enable it in tradewind.toml" in result.stdout
    whole = tradewind("plan", "job.yaml", "--anywhere", "--why").stdout
    assert "made of  training $" in whole
    assert "chosen by" in whole
    assert "###" in whole
    saved = tradewind("plan", "job.yaml", "--anywhere", "-o", "plan.json")
    assert saved.exit_code == 2
    assert not (tmp_path / "plan.json").exists()


def test_offers_of_real_gpus_load_no_database_and_no_arrays(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys\nsys.argv = ['tradewind', 'offers', '--gpu', 'H100:8', '--limit', '1']\n"
        "from orchestrator.cli import main\n"
        "try: main()\nexcept SystemExit: pass\nsys.stderr.write('\\n'.join(sys.modules))"
    )
    settings = environment | {"TRADEWIND_PROVIDERS_ENABLED": "local", "TRADEWIND_STATE_DIR": str(tmp_path / "none")}
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)
    assert "8xH100" in done.stdout
    assert set(done.stderr.split()) & {"sqlalchemy", "numpy", "alembic", "yaml", "orchestrator.store"} == set()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("deadline", ["30h", "28000h"])
def test_a_job_that_may_wait_until_its_deadline_says_so_and_not_when_that_is(
    tradewind: Run, state: Path, deadline: str
) -> None:
    file = Path("job.yaml")
    file.write_text(file.read_text() + f"capacity: [spot, on_demand]\ndeadline: {deadline}\n")
    for command in (("plan", "job.yaml"), ("plan", "job.yaml", "--why")):
        shown = " ".join(tradewind(*command).stdout.split())
        assert " or more, as it may wait until its deadline" in shown
        assert " to 3.2 years" not in shown
    (state / "up.lock").mkdir()  # no control plane is started
    assert tradewind("submit", "job.yaml", "--yes").exit_code == 0
    shown = " ".join(tradewind("status", "fresh").stdout.split())
    assert " or more, as it may wait until its deadline, p5-p95)" in shown
    assert " to 3.2 years" not in shown


@pytest.mark.parametrize("limit", ["deadline: 30h", "deadline: 2h", "deadline: 1s", ""])
def test_the_chosen_offer_has_one_cost_and_one_finish_on_every_part_of_a_screen(tradewind: Run, limit: str) -> None:
    file = Path("job.yaml")
    file.write_text(file.read_text() + f"capacity: [spot, on_demand]\n{limit}\n")
    (decided,) = json.loads(tradewind("plan", "job.yaml", "--output", "json").stdout)["decisions"]
    chosen = next(each for each in decided["choices"] if each["role"] == "choose")
    figures = {
        (each["cost_nano_usd"], each["duration_s"])
        for each in (*decided["front"], *decided["picks"], chosen)
        if each["offer_id"] == decided["offer_id"]
    }
    assert figures == {(decided["cost_nano_usd"], chosen["duration_s"])}
    costs = [each["cost_nano_usd"] for each in decided["front"]]
    times = [each["duration_s"] for each in decided["front"]]
    assert (costs, times) == (sorted(costs), sorted(times, reverse=True))
    shown = " ".join(tradewind("plan", "job.yaml", "--why").stdout.split())
    assert ("ignore its deadline" in shown) == bool(limit)


@pytest.mark.parametrize("option", [(), ("--why",), ("--policy-trace",)])
def test_a_job_has_one_headline_on_all_screens(tradewind: Run, option: tuple[str, ...]) -> None:
    first = next(line for line in tradewind("plan", "job.yaml").stdout.splitlines() if line.startswith("fresh: "))
    assert first.startswith("fresh: start on 1xV100 ")
    shown = tradewind("plan", "job.yaml", *option).stdout
    assert first in shown.splitlines()
    assert "place " not in shown
    (decided,) = json.loads(tradewind("plan", "job.yaml", *option, "--output", "json").stdout)["decisions"]
    assert decided["action"] == "place"


@pytest.mark.parametrize(
    "command", [("plan",), ("plan", "--why"), ("plan", "--anywhere"), ("submit", "--yes"), ("submit", "--dry-run")]
)
def test_a_plan_that_fits_nothing_gives_its_reason_once(tradewind: Run, command: tuple[str, ...]) -> None:
    file = Path("job.yaml")
    file.write_text(file.read_text().replace("gpu: [V100]", "gpu: ['V100:64']"))
    refused = tradewind(*command, "job.yaml")
    assert refused.exit_code == 6
    assert " ".join(refused.output.split()).count("nearest miss") == 1
    assert "error: fresh: no offer fits\nhint: " in refused.stderr
    document = json.loads(tradewind(*command, "job.yaml", "--output", "json").stdout)
    assert "nearest miss" in document["error"]["message"]
