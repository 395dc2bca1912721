"""What it costs to move bytes between regions. Must not know: what the bytes are.

A place is (provider, region). Rates are per 10^9 bytes, charged by the source. They are typical figures of a provider,
not of a pair of regions: enough to keep a policy from chasing cents with terabytes.
"""

from __future__ import annotations

Place = tuple[str, str]

GB = 1_000_000_000

# Public price lists (AWS, Azure: 2024-01; GCP: 2026-07). AWS between its regions mostly 0.02, GCP up to 0.08 between
# continents, Azure up to 0.05; to the internet AWS 0.09, GCP 0.12, Azure 0.087. `local` is simulated, and cheap.
_WITHIN = {"aws": 20_000_000, "gcp": 80_000_000, "azure": 50_000_000, "local": 10_000_000}
_ACROSS = {"aws": 90_000_000, "gcp": 120_000_000, "azure": 87_000_000, "local": 20_000_000}
_WITHIN_OTHER = 50_000_000
_ACROSS_OTHER = 90_000_000


def egress_nano_usd(source: Place, target: Place, size_bytes: int) -> int:
    """nano-USD for `size_bytes` from one place to another; 0 inside a region."""
    if source == target:
        return 0
    provider = source[0]
    table, other = (_WITHIN, _WITHIN_OTHER) if provider == target[0] else (_ACROSS, _ACROSS_OTHER)
    return table.get(provider, other) * size_bytes // GB
