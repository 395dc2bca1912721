"""Queries gpuhunt; runs in its virtual environment. See _peers.py."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path

ROUNDS = 2


def main() -> None:
    from gpuhunt import Catalog, CatalogItem  # type: ignore[import-not-found]
    from gpuhunt._internal.catalog import ProviderCatalog  # type: ignore[import-not-found]
    from gpuhunt._internal.models import AcceleratorVendor  # type: ignore[import-not-found]

    question = json.loads(Path(sys.argv[1]).read_text())
    items = defaultdict(list)
    for provider, _region, zone, name, gpu, count, vcpu, memory_gb, spot, usd in question["rows"]:
        items[provider].append(
            CatalogItem(
                provider=provider,
                instance_name=name,
                location=zone,
                price=usd,
                cpu=vcpu,
                memory=memory_gb,
                gpu_count=count,
                gpu_name=gpu.partition("-")[0],
                gpu_memory=80.0 if gpu.endswith("80GB") else 40.0 if gpu.endswith("40GB") else 16.0,
                spot=spot,
                disk_size=None,
                gpu_vendor=AcceleratorVendor.NVIDIA,
            )
        )
    catalog = Catalog(balance_resources=False, auto_reload=False)
    for provider, of in items.items():
        of.sort(key=lambda item: item.price)  # like its own catalogues
        catalog.catalog[provider] = ProviderCatalog("seeded", of)
    catalog.loaded_at = time.monotonic()
    seconds, cheapest = [], []
    for number, (gpu, count) in enumerate(question["requests"]):
        memory = {"80GB": (80, 80), "40GB": (40, 40)}.get(gpu.partition("-")[2], (None, None))
        for spot in (True, False):
            for _ in range(ROUNDS):
                begun = time.process_time()
                found = catalog.query(
                    provider=list(items),
                    gpu_name=gpu.partition("-")[0],
                    min_gpu_count=count,
                    max_gpu_count=count,
                    min_gpu_memory=memory[0],
                    max_gpu_memory=memory[1],
                    spot=spot,
                )
                seconds.append(time.process_time() - begun)
            cheapest.append((number, spot, found[0].price))
    sys.stdout.write(json.dumps({"seconds": seconds, "cheapest": cheapest}) + "\n")


if __name__ == "__main__":
    main()
