"""Queries SkyPilot's optimizer; runs in its virtual environment, with a separate HOME folder. See _peers.py.

It gets the offers as catalogue files in SkyPilot's format, with the clouds marked as enabled, so it needs no account
and no network. Only AWS and Azure are compared: SkyPilot's GCP file lists machines and GPUs separately and cannot hold
the same offers.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from pathlib import Path

CLOUDS = ("aws", "azure")
COLUMNS = (
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo", "Price", "SpotPrice",
    "Region", "AvailabilityZone", "Arch", "Generation",
)  # fmt: skip


def write_catalogues(rows: list[list[object]], folder: Path) -> None:
    """Write SkyPilot's catalogue files (schema v8, in which Azure has no zones)."""
    for cloud in CLOUDS:
        machines: dict[tuple[object, ...], list[object]] = {}
        for provider, region, zone, name, gpu, count, vcpu, memory_gb, spot, usd in rows:
            if provider == cloud:
                key = (name, named(str(gpu)), count, vcpu, memory_gb, region, zone if cloud == "aws" else "")
                machines.setdefault(key, ["", ""])[bool(spot)] = usd
        (folder / cloud).mkdir(parents=True)
        with (folder / cloud / "vms.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(COLUMNS)
            for (*machine, region, zone), (price, spot_price) in machines.items():
                table.writerow([*machine, "", price, spot_price, region, zone, "x86_64", ""])
        (folder / cloud / "images.csv").write_text("Tag,Region,OS,OSVersion,ImageId,CreationDate\n")
    (folder / "aws" / "instance_quota_mapping.csv").write_text("InstanceType,OnDemandInstanceCode,SpotInstanceCode\n")
    gpus = sorted({named(str(row[4])) for row in rows})
    (folder / "common").mkdir()
    lines = "".join(f"{gpu},\"['AWS', 'Azure']\"\n" for gpu in gpus)
    (folder / "common" / "accelerators.csv").write_text(f"AcceleratorName,Clouds\n{lines}")
    (folder / "common" / "metadata.csv").write_text("GPU,MemoryGB,Manufacturer\n")


def named(gpu: str) -> str:
    """SkyPilot's name for a GPU."""
    return gpu.replace("-40GB", "")


def main() -> None:
    question = json.loads(Path(sys.argv[1]).read_text())
    write_catalogues(question["rows"], Path(os.environ["HOME"]) / ".sky" / "catalogs" / "v8")
    import sky  # type: ignore[import-not-found]
    from sky import check, clouds, optimizer
    from sky.catalog import aws_catalog  # type: ignore[import-not-found]

    enabled = [clouds.AWS(), clouds.Azure()]
    check.get_cached_enabled_clouds_or_refresh = lambda *_args, **_options: enabled
    # otherwise SkyPilot asks AWS for the account's zone names
    aws_catalog._fetch_and_apply_az_mapping = lambda table: table
    seconds, cheapest = [], []
    for number, (gpu, count) in enumerate(question["requests"]):
        for spot in (True, False):
            with sky.Dag() as dag:
                task = sky.Task(run="true")
                task.set_resources(sky.Resources(accelerators={named(gpu): count}, use_spot=spot))
            begun = time.process_time()
            optimizer.Optimizer.optimize(dag, quiet=True)
            seconds.append(time.process_time() - begun)
            cheapest.append((number, spot, task.best_resources.get_cost(3600)))
    answer = {"seconds": seconds, "cheapest": cheapest, "clouds": CLOUDS}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
