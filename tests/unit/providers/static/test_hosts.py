"""Declarations of machines that people own: what they mean, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.errors import SpecError
from providers.static.hosts import HostsError, as_tables, read_hosts

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
    with pytest.raises(
        ValueError, match=r"two: is the same offer as one .*differs in price or memory .make them equal"
    ):
        read_hosts({"one": lab, "two": {**lab, "price_per_hour": 1}})


def test_declarations_survive_as_text() -> None:
    hosts = read_hosts({"desk1": {**DESK, "gpu": "T4", "key_file": "~/key", "accept_new_host_key": True}, "two": DESK})
    assert read_hosts(as_tables(hosts)) == hosts


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adress": "x"}, 'desk1.adress: unknown option (did you mean "address"?)'),
        ({"colour": "x"}, "desk1.colour: unknown option (one of address, vcpus, memory_gb, user, port, "),
        (
            {"address": "-oProxyCommand=x"},
            "desk1.address: '-oProxyCommand=x' is not a host name or an IP address "
            '(write it like address = "desk1.lan")',
        ),
        ({"address": ""}, "desk1.address: must be text and not empty"),
        ({"user": "a b"}, "desk1.user: 'a b' is not a user's name (write it like user = \"ada\")"),
        ({"port": 0}, 'desk1.port: must be a whole number from 1 to 65535 (write it like "port = 22")'),
        ({"port": True}, "desk1.port: must be a whole number"),
        ({"gpu": "H900"}, "desk1.gpu: 'H900' is not a known GPU (write it like gpu = \"RTX-4090\")"),
        ({"gpu": "A100"}, "A100-40GB or A100-80GB: name one of them"),
        ({"gpu": "SIM-S"}, "not a known GPU"),
        ({"gpu": 8}, "desk1.gpu: 8 is not a known GPU"),
        ({"gpu": "2xT4"}, "desk1.gpu: '2xT4' has a number: write it as gpus = 2"),
        ({"gpus": 2}, 'desk1.gpus: is set, but gpu is not (add the kind, such as gpu = "RTX-4090")'),
        (
            {"gpu": "T4", "gpus": 3, "slots": 2},
            "desk1.slots: 3 GPUs cannot be shared equally by 2 slots (make gpus a multiple of slots)",
        ),
        ({"slots": 32}, "desk1.slots: 16 CPU cores are not enough for 32 slots (set at most 16)"),
        ({"slots": 0}, "desk1.slots: must be a whole number from 1 to 64"),
        (
            {"memory_gb": "64 GB"},
            'desk1.memory_gb: must be a number from 0.1 to 1,000,000 (write it like "memory_gb = 64")',
        ),
        ({"price_per_hour": -1}, "desk1.price_per_hour: must be a number from 0"),
        ({"price_per_hour": float("nan")}, "desk1.price_per_hour: must be a number"),
        ({"region": "My Lab"}, "desk1.region: 'My Lab' is not a label"),
        ({"folder": "scratch"}, "desk1.folder: 'scratch' is not an absolute path"),
        ({"host_key": "AAAA"}, "desk1.host_key: 'AAAA' is not a public key"),
        ({"host_key": "ssh-ed25519 AAAA", "known_hosts": "x"}, "desk1.host_key: excludes known_hosts"),
        ({"accept_new_host_key": "yes"}, "desk1.accept_new_host_key: must be true or false"),
        ({"python": "py\nthon"}, "desk1.python: must be text"),
        ({"peer_address": "desk1"}, "desk1.peer_address: 'desk1' is not an IPv4 address"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(options: dict[str, object], said: str) -> None:
    assert said in wrong(**options)
    assert wrong(**options).endswith(")")


def test_every_mistake_of_every_host_is_reported() -> None:
    with pytest.raises(HostsError) as raised:
        read_hosts({"one": {"adress": "one.lan", "vcpus": "4", "memory_gb": 8}, "two": 3, "three": {}})
    assert [(field, message) for field, message, _ in raised.value.problems] == [
        ("one.adress", "unknown option"),
        ("one.vcpus", "must be a whole number from 1 to 2147483648"),
        ("two", "must be a table of the host's options"),
        ("three", "address is missing"),
        ("three", "vcpus is missing"),
        ("three", "memory_gb is missing"),
    ]


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
    found = (problem.line, problem.field, problem.message, problem.hint)
    assert found == (2, "providers.static.hosts.desk1", "memory_gb is missing", "add memory_gb = 64")


def test_a_wrong_option_is_reported_at_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        load(tmp_path, '[providers.static.hosts.desk1]\naddress = "desk1"\nvcpus = "4"\nmemory_gb = "8 GB"\n')
    assert [(each.line, each.field) for each in raised.value.problems] == [
        (3, "providers.static.hosts.desk1.vcpus"),
        (4, "providers.static.hosts.desk1.memory_gb"),
    ]


def test_hosts_that_are_no_tables_are_a_mistake_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"hosts: must be a table for each host .write its options below .providers"):
        load(tmp_path, "[providers.static]\nhosts = 3\n")


def test_static_without_hosts_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="static has no hosts"):
        load(tmp_path, '[providers]\nenabled = ["static"]\n')


def test_hosts_are_read_from_the_environment(tmp_path: Path) -> None:
    text = '{"desk1": {"address": "desk1", "vcpus": 4, "memory_gb": 8}}'
    config = load_config(cwd=tmp_path, environ={"TRADEWIND_PROVIDERS_STATIC_HOSTS": text})
    assert [host.name for host in config.providers.static.hosts.hosts] == ["desk1"]
    with pytest.raises(SpecError, match="must be JSON"):
        load_config(cwd=tmp_path, environ={"TRADEWIND_PROVIDERS_STATIC_HOSTS": "desk1"})
