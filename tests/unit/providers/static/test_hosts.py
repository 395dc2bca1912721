"""Declarations of machines that people own: what they mean, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.errors import SpecError
from providers.static.hosts import as_tables, read_hosts

DESK = {"address": "desk1.lan", "vcpus": 16, "memory_gb": 64}


def wrong(**options: object) -> str:
    with pytest.raises(ValueError, match="desk1") as raised:
        read_hosts({"desk1": {**DESK, **options}})
    return str(raised.value)


def test_a_host_is_an_offer_of_its_own() -> None:
    (host,) = read_hosts({"desk1": {**DESK, "gpu": "4090", "price_per_hour": 0.25}})
    assert host.offer.id == "static/desk1/desk1/rtx-4090.1/on_demand"
    assert (host.offer.gpu, host.offer.gpu_count, host.offer.vcpu) == ("RTX-4090", 1, 16)
    assert host.offer.memory_bytes == 64 * 10**9
    assert host.slot_nano_usd_per_hour == 250_000_000


def test_each_slot_has_an_equal_share() -> None:
    (host,) = read_hosts({"big": {**DESK, "gpu": "A100-80GB", "gpus": 8, "slots": 4, "price_per_hour": 4}})
    assert host.offer.id == "static/big/big/a100-80gb.2/on_demand"
    assert (host.offer.gpu_count, host.offer.vcpu, host.offer.memory_bytes) == (2, 4, 16 * 10**9)
    assert host.slot_nano_usd_per_hour == 1_000_000_000
    assert [host.gpus_of_slot(slot) for slot in range(4)] == ["0,1", "2,3", "4,5", "6,7"]


def test_equal_hosts_of_a_region_are_one_offer() -> None:
    lab = {**DESK, "region": "lab"}
    one, two = read_hosts({"one": lab, "two": {**lab, "address": "desk2.lan", "slots": 1}})
    assert one.offer == two.offer
    with pytest.raises(ValueError, match="one and two are the same offer"):
        read_hosts({"one": lab, "two": {**lab, "price_per_hour": 1}})


def test_declarations_survive_as_text() -> None:
    hosts = read_hosts({"desk1": {**DESK, "gpu": "T4", "key_file": "~/key", "accept_new_host_key": True}, "two": DESK})
    assert read_hosts(as_tables(hosts)) == hosts


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adress": "x"}, "desk1: unknown option 'adress'"),
        ({"address": "-oProxyCommand=x"}, "address is '-oProxyCommand=x', which is not a host name or an IP address"),
        ({"address": ""}, "address must be text"),
        ({"user": "a b"}, "user is 'a b'"),
        ({"port": 0}, "port must be a whole number from 1 to 65535"),
        ({"port": True}, "port must be a whole number"),
        ({"gpu": "H900"}, "gpu is 'H900', which is not a known GPU"),
        ({"gpu": "A100"}, "A100-40GB or A100-80GB: name one of them"),
        ({"gpu": "SIM-S"}, "not a known GPU"),
        ({"gpus": 2}, "gpus is set, but gpu is not"),
        ({"gpu": "T4", "gpus": 3, "slots": 2}, "3 GPUs cannot be shared equally by 2 slots"),
        ({"slots": 32}, "16 CPU cores are not enough for 32 slots"),
        ({"slots": 0}, "slots must be a whole number"),
        ({"memory_gb": "64"}, "memory_gb must be a number"),
        ({"price_per_hour": -1}, "price_per_hour must be a number from 0"),
        ({"price_per_hour": float("nan")}, "price_per_hour must be a number"),
        ({"region": "My Lab"}, "region is 'My Lab', which is not a label"),
        ({"folder": "scratch"}, "folder is 'scratch', which is not an absolute path"),
        ({"host_key": "AAAA"}, "host_key is 'AAAA', which is not a public key"),
        ({"host_key": "ssh-ed25519 AAAA", "known_hosts": "x"}, "host_key excludes known_hosts"),
        ({"accept_new_host_key": "yes"}, "accept_new_host_key must be true or false"),
        ({"python": "py\nthon"}, "python must be text"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], said: str) -> None:
    assert said in wrong(**options)


@pytest.mark.parametrize("missing", ["address", "vcpus", "memory_gb"])
def test_a_missing_option_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match=f"desk1: {missing} is missing"):
        read_hosts({"desk1": {name: value for name, value in DESK.items() if name != missing}})


@pytest.mark.parametrize("name", ["Desk", "a/b", "-x", "", "a" * 41])
def test_a_wrong_name_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name of a host"):
        read_hosts({name: DESK})


def load(folder: Path, text: str):
    (folder / "tradewind.toml").write_text(text)
    return load_config(cwd=folder, environ={})


def test_hosts_are_read_from_the_file_with_paths_beside_it(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        '[providers]\nenabled = ["static"]\n[providers.static.hosts.desk1]\naddress = "desk1"\nvcpus = 4\n'
        'memory_gb = 8\nkey_file = "keys/desk1"\n',
    )
    (host,) = config.providers.static.hosts.hosts
    assert host.key_file == str(tmp_path / "keys" / "desk1")


def test_a_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        load(tmp_path, '\n[providers.static.hosts.desk1]\naddress = "desk1"\nvcpus = 4\n')
    (problem,) = raised.value.problems
    found = (problem.line, problem.field, problem.message)
    assert found == (2, "providers.static.hosts.desk1", "memory_gb is missing")


def test_static_without_hosts_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="static has no hosts"):
        load(tmp_path, '[providers]\nenabled = ["static"]\n')


def test_hosts_are_read_from_the_environment(tmp_path: Path) -> None:
    text = '{"desk1": {"address": "desk1", "vcpus": 4, "memory_gb": 8}}'
    config = load_config(cwd=tmp_path, environ={"TRADEWIND_PROVIDERS_STATIC_HOSTS": text})
    assert [host.name for host in config.providers.static.hosts.hosts] == ["desk1"]
    with pytest.raises(SpecError, match="must be JSON"):
        load_config(cwd=tmp_path, environ={"TRADEWIND_PROVIDERS_STATIC_HOSTS": "desk1"})
