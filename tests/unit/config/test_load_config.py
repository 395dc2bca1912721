"""Settings: who wins, where each comes from, and what is said about mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.config import SETTINGS, Config, load_config, shown_settings
from orchestrator.config.settings import MAX_TEMP_DIR_BYTES
from orchestrator.errors import SpecError
from orchestrator.prices.sources import configured_sources


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder with an empty working folder in it."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    return tmp_path


def config_of(
    home: Path, flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None, toml: str = ""
) -> Config:
    if toml:
        (home / "work" / "tradewind.toml").write_text(toml)
    return load_config(flags, home / "work", environ or {})


def problems_of(home: Path, *sources: Any, **options: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        config_of(home, *sources, **options)
    return [str(problem) for problem in caught.value.problems]


def test_without_any_source_everything_is_a_default_and_nothing_is_made(home: Path) -> None:
    config = config_of(home)
    assert config.state_dir == home / ".local" / "state" / "tradewind"
    assert config.store_url == f"sqlite:///{config.state_dir}/tradewind.db"
    assert config.providers.enabled == ("local",)
    assert (config.providers.local.seed, config.providers.local.clock_factor) == (7, 60.0)
    assert (config.lease_s, config.suspect_after_s) == (90.0, 5.0)
    assert config.policy.decide_every_s == 86_400
    assert set(config.origins) == set(SETTINGS)
    assert set(config.origins.values()) == {"default"}
    assert sorted(home.rglob("*")) == [home / "work"]


def test_the_strongest_source_wins_and_is_remembered(home: Path) -> None:
    user = home / ".config" / "tradewind" / "tradewind.toml"
    user.parent.mkdir(parents=True)
    user.write_text(
        "lease_s = 11\n[policy]\nmin_dwell_s = 11\nmax_migrations_per_day = 11\n[limits]\nmax_instances = 11\n"
    )
    toml = "lease_s = 22\n\n[policy]\nmin_dwell_s = 22\nmax_migrations_per_day = 22\n"
    environ = {"TRADEWIND_LEASE_S": "33", "TRADEWIND_POLICY_MIN_DWELL_S": "33", "TRADEWIND_SPEC": "x"}
    config = config_of(home, {"lease_s": "44"}, environ, toml)
    assert (config.lease_s, config.origins["lease_s"]) == (44.0, "command line")
    assert config.policy.min_dwell_s == 33.0
    assert config.origins["policy.min_dwell_s"] == "env TRADEWIND_POLICY_MIN_DWELL_S"
    assert (config.policy.max_migrations_per_day, config.origins["policy.max_migrations_per_day"]) == (
        22,
        "tradewind.toml:5",
    )
    assert (config.limits.max_instances, config.origins["limits.max_instances"]) == (11, f"{user}:6")
    assert config.origins["limits.max_usd_per_hour"] == "default"


def test_a_path_is_relative_to_where_it_is_written(home: Path) -> None:
    toml = 'state_dir = "state"\n'
    assert config_of(home, toml=toml).state_dir == home / "work" / "state"
    assert config_of(home, {"state_dir": Path("../x")}).state_dir == home / "x"
    assert config_of(home, environ={"TRADEWIND_STATE_DIR": "~/y"}).state_dir == home / "y"
    config = config_of(home)
    assert config.store_url == f"sqlite:///{home}/work/state/tradewind.db"
    assert config.origins["store_url"] == "default"


def test_an_empty_variable_counts_as_unset(home: Path) -> None:
    assert config_of(home, environ={"TRADEWIND_LEASE_S": ""}).lease_s == 90.0


def test_the_folder_of_sockets_is_short_and_its_own_for_each_state_folder(home: Path) -> None:
    one, two = (config_of(home, {"state_dir": name}).site.temp_dir for name in ("/one", "/two"))
    long = config_of(home, environ={"TMPDIR": "/var/tmp/" + "x" * 60}).site.temp_dir
    own = config_of(home, environ={"TMPDIR": "/scratch"}).site.temp_dir
    assert one != two
    assert own.parent == Path("/scratch")
    assert all(len(str(path)) <= MAX_TEMP_DIR_BYTES for path in (one, two, long, own))


def test_market_time_is_wall_time_with_a_real_cloud(home: Path) -> None:
    cloud = {"providers.gcp.regions": "us-central1", "providers.gcp.machine_types": "g2-standard-8"}
    cloud["providers.gcp.image"] = "projects/my-project/global/images/family/torch"
    assert config_of(home, {"providers.enabled": "local, gcp", **cloud}).providers.local.clock_factor == 1.0
    assert config_of(home, {"providers.enabled": ["local", "fake"]}).providers.local.clock_factor == 60.0
    flags = {"providers.enabled": ("local", "gcp"), "providers.local.clock_factor": 600, **cloud}
    assert problems_of(home, flags) == [
        "command line: providers.local.clock_factor: must be 1 if a real cloud is enabled (gcp) (remove this setting)"
    ]


def test_all_mistakes_of_all_sources_are_reported_at_once_with_their_places(home: Path) -> None:
    toml = """\
state_dri = "x"
lease_s = "long"
policy = 5

[providers]
enabled = []
  [providers.local]
  "seed" = -1
  clock_factor = true
[limits]
min_dwell_s = 3
inline = {max_instances = 3}
"""
    flags = {"stor_url": "x", "store_url": "mysql://x"}
    environ = {
        "TRADEWIND_PROVIDERS_LOCAL_HAZARD": "maybe",
        "TRADEWIND_LEASE_S": "30",
        "TRADEWIND_POLICY_MIN_DWELL": "5",
        "TRADEWIND_WEB_COLOUR": "",
        "TRADEWIND_LEASES_S": "30",
        "TRADEWIND_PROVIDERS_ENABLE": "aws",
        "TRADEWIND_PROVIDERS_LAMBDA_REGION": "of a provider in a package of its own",
        "TRADEWIND_OUTPUT_DIR": "not a setting",
    }
    assert problems_of(home, flags, environ, toml) == [
        'command line: stor_url: unknown setting (did you mean "store_url"?)',
        'command line: store_url: must be a database URL, such as "postgresql://user@host/tradewind"',
        "env TRADEWIND_PROVIDERS_LOCAL_HAZARD: providers.local.hazard: must be true or false (such as false)",
        'env TRADEWIND_LEASES_S: no such setting (did you mean "TRADEWIND_LEASE_S"?)',
        'env TRADEWIND_POLICY_MIN_DWELL: no such setting (did you mean "TRADEWIND_POLICY_MIN_DWELL_S"?)',
        'env TRADEWIND_PROVIDERS_ENABLE: no such setting (did you mean "TRADEWIND_PROVIDERS_ENABLED"?)',
        'tradewind.toml:1:1: state_dri: unknown setting (did you mean "state_dir"?)',
        'tradewind.toml:2:1: lease_s: must be a number, more than 0 (write it like "lease_s = 30")',
        "tradewind.toml:3:1: policy: must be a table: write [policy]",
        "tradewind.toml:6:1: providers.enabled: must list at least one name of lower-case letters and digits "
        '(write it like enabled = ["local"])',
        'tradewind.toml:8:3: providers.local.seed: must be a whole number, at least 0 (write it like "seed = 11")',
        "tradewind.toml:9:3: providers.local.clock_factor: must be a number, more than 0 "
        '(write it like "clock_factor = 60")',
        'tradewind.toml:11:1: limits.min_dwell_s: unknown setting (did you mean "policy.min_dwell_s"?)',
        'tradewind.toml:12:1: limits.inline: unknown setting (did you mean "limits.max_instances"?)',
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"state_dir": ""}, "state_dir: must be text and not empty"),
        ({"state_dir": "a\0b"}, "state_dir: must be text and not empty"),
        ({"state_dir": 5}, "state_dir: must be text and not empty"),
        ({"lease_s": "nan"}, "lease_s: must be a number, more than 0"),
        ({"lease_s": 10**400}, "lease_s: must be a number, more than 0"),
        ({"lease_s": 4}, "command line: lease_s: must be more than suspect_after_s, which is 5"),
        ({"suspect_after_s": "90"}, "command line: suspect_after_s: must be less than lease_s, which is 90"),
        ({"policy.min_dwell_s": -1}, "policy.min_dwell_s: must be a number, at least 0"),
        ({"limits.max_instances": 1.5}, "limits.max_instances: must be a whole number, at least 0"),
        ({"limits.max_usd_per_hour": 0}, "limits.max_usd_per_hour: must be a number, more than 0"),
        ({"providers.enabled": "local,local"}, 'providers.enabled: lists "local" twice (delete one)'),
        (
            {"providers.enabled": "awz"},
            'there is no provider "awz" (did you mean "aws"? installed: aws, azure, fake, gcp, local, static)',
        ),
        ({"providers.enabled": "zebra"}, 'there is no provider "zebra" (installed: aws, azure,'),
        ({"providers.aws.regions": "Ohio"}, "'Ohio' is not valid (such as us-east-1,eu-west-1)"),
        ({"policy.time_sharing": "max-min"}, '(did you mean "max-min-fairness"?)'),
        (
            {"policy.time_sharing": True},
            "must be one of none, max-min-fairness, finish-time-fairness (such as max-min-fairness)",
        ),
        ({"prices.clouds": "awz"}, '(did you mean "aws"?)'),
        ({"store_root": "s3://Bad_Bucket"}, 'digits, "." and "-", such as bad-bucket)'),
        ({"providers.enabled": 5}, "providers.enabled: must be a list of names"),
        ({"site.temp_dir": "/" + "x" * 40}, "site.temp_dir: must be at most 31 bytes long"),
        ({"web.port": 99999}, "web.port: must be a whole number from 1 to 65535"),
        ({"web.port": "65536"}, "web.port: must be a whole number from 1 to 65535"),
        ({"web.port": 0}, "web.port: must be a whole number from 1 to 65535"),
        (
            {"store_url": "postgresql://tw@db:99999/tw"},
            "store_url: its port must be a whole number from 1 to 65535",
        ),
        (
            {"store_url": "postgresql://tw:p@ss@db:abc/tw"},
            "store_url: its port must be a whole number from 1 to 65535",
        ),
        ({"store_url": "postgresql://[::1]:0/tw"}, "store_url: its port must be a whole number from 1 to 65535"),
        ({"store_url": "postgresql://u@h:/tw"}, "store_url: its port must be a whole number from 1 to 65535"),
    ],
)
def test_an_invalid_value_is_refused(home: Path, flags: dict[str, object], message: str) -> None:
    (problem,) = problems_of(home, flags)
    assert message in problem


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"lease_s = = 5\n", "tradewind.toml:1:11: not valid TOML"),
        (b"lease_s =", "tradewind.toml:1:10: not valid TOML"),
        (b'x = """never closed\n', "tradewind.toml:2:1: not valid TOML"),
        (b"x = " + b"[" * 5000, "tradewind.toml:1:1: is nested too deeply (use fewer levels of arrays and tables)"),
        (b"x = '\xe9'\n", "tradewind.toml: cannot be read: it is not UTF-8 text"),
    ],
)
def test_an_invalid_toml_file_is_a_problem_with_its_place(home: Path, content: bytes, message: str) -> None:
    (home / "work" / "tradewind.toml").write_bytes(content)
    (problem,) = problems_of(home)
    assert problem.startswith(message)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("lease_s = 1\nlease_s = 2\n", "2:1: lease_s: is given twice, first on line 1 (delete one of the two)"),
        (
            "[limits]\nmax_instances = 1\n# more\n  max_instances = 2",
            "4:3: limits.max_instances: is given twice, first on line 2 (delete one of the two)",
        ),
        (
            "[providers]\nenabled = [\n  'local',\n]\n\nenabled = [\n  'aws',\n]\n",
            "6:1: providers.enabled: is given twice, first on line 2 (delete one of the two)",
        ),
        (
            "[limits]\nmax_instances = 1\n[site]\n[limits]\n",
            "4:2: limits: is given twice, first on line 1 (join the two tables)",
        ),
        (
            "limits.max_instances = 1\n[limits]\nmax_usd_per_hour = 1\n",
            "2:2: limits: is given twice, first on line 1 (join the two tables)",
        ),
        (
            "limits = 1\n[limits]\nmax_usd_per_hour = 1\n",
            "2:2: limits: is given twice, first on line 1 (join the two tables)",
        ),
        (
            "limits = {max_instances = 1, max_instances = 2}",
            "1:47: max_instances: is given twice in one inline table (delete one of the two)",
        ),
        ("limits = {max_instances = 1}\n[limits.more]\n", "2:13: not valid TOML: Cannot declare"),
    ],
)
def test_a_key_that_is_given_twice_is_named_with_both_places(home: Path, content: str, problem: str) -> None:
    (found,) = problems_of(home, toml=content)
    assert found.startswith(f"tradewind.toml:{problem}")


def test_numbers_and_yes_and_no_have_no_quotes_in_a_file(home: Path) -> None:
    toml = """\
lease_s = "30"
[limits]
max_instances = " 4"
[providers.local]
hazard = "no"
"""
    assert problems_of(home, toml=toml) == [
        "tradewind.toml:1:1: lease_s: must be 30, without quotes",
        "tradewind.toml:3:1: limits.max_instances: must be 4, without quotes",
        "tradewind.toml:5:1: providers.local.hazard: must be false, without quotes",
    ]


def test_a_pipe_in_place_of_the_file_is_a_problem_and_not_waited_for(home: Path) -> None:
    os.mkfifo(home / "work" / "tradewind.toml")
    assert problems_of(home) == ["tradewind.toml: cannot be read: it is a pipe or a device (replace it with a file)"]


def test_a_folder_in_place_of_the_file_is_a_problem(home: Path) -> None:
    (home / "work" / "tradewind.toml").mkdir()
    assert problems_of(home) == ["tradewind.toml: cannot be read: Is a directory"]


@pytest.mark.parametrize(
    "where",
    ["db:5432", "db", "", "u@h", "[::1]", "[::1]:5432", "u:p:w@[2001:db8::1]", "tw:p:1@db:5432", "/tw?host=a:1"],
)
def test_a_store_on_any_port_that_there_is_can_be_named(home: Path, where: str) -> None:
    assert config_of(home, {"store_url": f"postgresql://{where}/tw"}).store_url == f"postgresql://{where}/tw"


def test_settings_are_shown_as_flags_would_write_them_and_passwords_hidden(home: Path) -> None:
    flags = {"store_url": "postgresql://me:hunter2@db/tw", "providers.local.hazard": False}
    config = config_of(home, flags)
    shown = {setting.key: setting for setting in shown_settings(config)}
    assert list(shown) == list(SETTINGS)
    assert shown["store_url"].value == "postgresql://me:***@db/tw"
    assert shown["providers.local.hazard"].value == "false"
    assert shown["providers.enabled"].value == "local"
    assert shown["lease_s"].value == "90"
    assert shown["secrets.key_file"].value == ""
    again = {key: setting.value for key, setting in shown.items() if key != "store_url" and setting.value}
    assert {item.key: item.value for item in shown_settings(config_of(home, again)) if item.key in again} == again


def test_price_sources_are_tables_of_options_with_paths_relative_to_their_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID", raising=False)
    toml = (
        '[prices]\nclouds = ["azure"]\n[prices.sources.azure-prices]\nregions = ["eastus"]\nevery_s = 60\n'
        '[prices.sources."feed:verda"]\nat = "verda.csv"\n[prices.sources."feed:far"]\nat = "https://x.org/p.csv"\n'
    )
    config = config_of(home, toml=toml)
    assert config.prices.clouds == ("azure",)
    assert config.prices.sources.options["feed:verda"] == {"at": str(home / "work" / "verda.csv")}
    assert config.prices.sources.options["feed:far"] == {"at": "https://x.org/p.csv"}
    names = [spec.name for spec in configured_sources(config)]
    assert names == ["azure-prices", "feed:verda", "feed:far"]  # prices need no account, risks do
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "s")
    assert "azure-risk" in [spec.name for spec in configured_sources(config)]
    first = configured_sources(config)[0]
    assert (dict(first.options), first.cadence_s) == ({"regions": ["eastus"]}, 60)
    shown = {setting.key: setting.value for setting in shown_settings(config)}
    again = config_of(home, {name: shown[name] for name in ("prices.clouds", "prices.sources")})
    assert again.prices == config.prices


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('[prices]\nclouds = ["ibm"]', "tradewind.toml:2:1: prices.clouds: 'ibm' is not one of aws, gcp, azure"),
        (
            "[prices.sources.aws-spots]\n",
            "tradewind.toml:1:2: prices.sources.aws-spots: there is no price source named 'aws-spots' "
            "(did you mean 'aws-spot'? known: ",
        ),
        (
            '[prices.sources."feed:verda"]\nurl = "x"',
            "tradewind.toml:1:2: prices.sources.feed:verda: at is missing "
            '(add the path or URL of the prices, such as at = "prices.csv")\n'
            "tradewind.toml:2:1: prices.sources.feed:verda.url: unknown option "
            "(one of at, usd_per_unit, read_s, attempts)",
        ),
        (
            '[prices.sources.feed]\nat = "x"',
            'tradewind.toml:1:2: prices.sources.feed: has no name (write [prices.sources."feed:NAME"])',
        ),
        (
            "[prices.sources.aws-spot]\nevery_s = 0",
            "tradewind.toml:2:1: prices.sources.aws-spot.every_s: must be a number of seconds, at least 1 "
            '(write it like "every_s = 900")',
        ),
        (
            '[prices.sources.aws-spot]\nregion = ["eu-west-1"]',
            'tradewind.toml:2:1: prices.sources.aws-spot.region: unknown option (did you mean "regions"?)',
        ),
        (
            '[prices.sources.aws-spot]\nregions = "eu-west-1"',
            "tradewind.toml:2:1: prices.sources.aws-spot.regions: must be a list of text "
            '(write it like regions = ["us-east-1"])',
        ),
        (
            "[prices.sources.azure-prices]\nsubscription = 1\nread_s = nan",
            "tradewind.toml:2:1: prices.sources.azure-prices.subscription: must be true or false "
            '(write it like "subscription = true")\n'
            "tradewind.toml:3:1: prices.sources.azure-prices.read_s: must be a number, at least 0 "
            '(write it like "read_s = 30")',
        ),
        (
            '[prices.sources."feed:verda"]\nat = "x"\nusd_per_unit = {EUR = 1.08}',
            "prices.sources.feed:verda.usd_per_unit: must be a table of text "
            '(write it like usd_per_unit = { EUR = "1.08" })',
        ),
        (
            "[prices.sources]\naws-spot = 3",
            "tradewind.toml:2:1: prices.sources.aws-spot: must be a table of the source's options (write them below a "
            "name, such as [prices.sources.aws-spot]",
        ),
        (
            "[prices]\nsources = 3",
            "tradewind.toml:2:1: prices.sources: must be tables of options by source (write them",
        ),
        ("[prices]\nkeep_days = 3", "prices.keep_days: must be a whole number, at least 31"),
    ],
)
def test_a_price_source_that_is_none_is_a_problem_in_its_place(home: Path, toml: str, problem: str) -> None:
    (home / "work" / "tradewind.toml").write_text(toml)
    reported = problems_of(home)
    assert problem in "\n".join(reported)
    assert len(reported) == problem.count("\n") + 1


def test_loading_is_light(home: Path) -> None:
    code = (
        "import sys; from orchestrator.config import load_config; load_config()\n"
        "heavy = {'pydantic', 'numpy', 'sqlalchemy', 'yaml', 'ray', 'torch'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=home / "work", env={"HOME": str(home)}, check=True)
    assert sorted(home.rglob("*")) == [home / "work"]


def can_be_shown(error: SpecError) -> None:
    assert str(error)
    assert error.problems


ANY_HOME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
VALUES = st.one_of(
    st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.text(max_size=3), max_size=2)
)


@ANY_HOME
@given(st.dictionaries(st.one_of(st.sampled_from(sorted(SETTINGS)), st.text(max_size=5)), VALUES, max_size=4))
def test_any_flags_are_a_configuration_or_a_spec_error(home: Path, flags: dict[str, object]) -> None:
    try:
        assert isinstance(config_of(home, flags), Config)
    except SpecError as error:
        can_be_shown(error)


@ANY_HOME
@given(st.text(alphabet=st.sampled_from("leas_[]=.\"' \n#5{}a,\u00e9\t"), max_size=40))
def test_any_file_is_a_configuration_or_a_spec_error(home: Path, toml: str) -> None:
    try:
        assert isinstance(config_of(home, toml=toml), Config)
    except SpecError as error:
        can_be_shown(error)


def test_every_setting_has_an_example_that_it_can_be_given_as_text(home: Path) -> None:
    for setting in SETTINGS.values():
        setting.read(setting.example_text)


def test_a_wrong_value_is_reported_with_its_line_and_a_way_to_write_it(home: Path) -> None:
    assert problems_of(home, toml='[web]\nport = 0\n[providers]\nenabled = ["local", "awz"]\n') == [
        'tradewind.toml:2:1: web.port: must be a whole number from 1 to 65535 (write it like "port = 8420")',
        'tradewind.toml:4:1: providers.enabled: there is no provider "awz" '
        '(did you mean "aws"? installed: aws, azure, fake, gcp, local, static)',
    ]


def test_each_wrong_host_is_reported_at_its_own_line_and_a_misspelt_section_with_the_nearest(home: Path) -> None:
    toml = """\
[polcy]
min_dwell_s = 3
[providers.static.hosts.a]
address = "a.lan"
vcpus = 16
memory_gb = 64
[providers.static.hosts.b]
address = "b.lan"
vcpus = 0
memory_gb = 64
[providers.static.hosts.C]
"""
    assert problems_of(home, toml=toml) == [
        'tradewind.toml:1:2: polcy: unknown setting (did you mean "policy"?)',
        "tradewind.toml:9:1: providers.static.hosts.b.vcpus: must be a whole number from 1 to 2147483648 "
        '(write it like "vcpus = 16")',
        "tradewind.toml:11:2: providers.static.hosts.C: is not a valid name of a host "
        "(use lower-case letters, digits and dashes, at most 40)",
        'tradewind.toml:11:2: providers.static.hosts.C: address is missing (add address = "desk1.lan")',
        "tradewind.toml:11:2: providers.static.hosts.C: vcpus is missing (add vcpus = 16)",
        "tradewind.toml:11:2: providers.static.hosts.C: memory_gb is missing (add memory_gb = 64)",
    ]


def test_a_file_may_begin_with_a_byte_order_mark_and_a_number_that_is_too_large_names_the_largest(home: Path) -> None:
    toml = "\ufeff[limits]\nmax_instances = 99999999999999999999\n"
    assert problems_of(home, toml=toml) == [
        "tradewind.toml:2:1: limits.max_instances: must be a whole number from 0 to 9223372036854775807 "
        '(write it like "max_instances = 4")'
    ]
