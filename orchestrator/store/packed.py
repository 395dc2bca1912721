"""Packed: the store's largest documents, compressed.

A document of one job is short, so zlib alone finds little in it that is repeated. With a preset dictionary, the names
of fields cost next to nothing. Documents that were stored without one, or as text, are still read.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode

_DICTIONARY = (
    b'{"schema":"comparison-inputs/1","stays":[{"from_ms":17,"ended":true,"parts":[{"run_id":"run_","offer'
    b'_id":"azure/","offer_id":"gcp/","offer_id":"aws/us-east-1/us-east-1a/p4d.24xlarge/on_demand","kept_m'
    b's":0,"worked_ms":0,"pace":1.0}]}],"prices":{"/spot":[[1700000000000,1000000000]]},"cards":{"aws":{"s'
    b'ource":"https://","minimum_ms":60000,"storage_nano_usd_per_gb_month":0,"disk_bytes":0,"disk_nano_usd'
    b'_per_gb_month":0,"failed_launch_nano_usd":0,"region_egress_nano_usd_per_gb":0,"internet_egress_nano_'
    b'usd_per_gb":0,"read_request_nano_usd":0,"write_request_nano_usd":0,"bills_checkpoints":true,"declare'
    b'd":true}},"carried_nano_usd":0,"rates":[],"nodes":1}{"schema":"placement/1","job_id":"job_","action"'
    b':"move","action":"stay","action":"wait","action":"place","offer_id":"aws/","reason":"not measured ye'
    b't: Tradewind measures the job where that costs least, among the offers that could be cheapest","cost'
    b'_nano_usd":null,"finish_at_ms":null,"saving_nano_usd":0,"baseline":null,"throughput":null,"alternati'
    b'ves":[{"offer_id":"/spot","nano_usd_per_hour":1000000000,"price_age_s":0.0,"steps_per_s":null,"nano_'
    b'usd_per_step":null,"cost_nano_usd":null,"cost_low_nano_usd":null,"cost_high_nano_usd":null,"duration'
    b'_s":null,"feasible":true,"reason":"","duration_low_s":null,"duration_high_s":null,"relative_speed":{'
    b'"value":0.0,"low":0.0,"high":0.0,"provenance":"","feasible":false,"reason":"0% more per step"'
)
"""Never changed: documents that were stored with it can only be read with it. What is most frequent comes last."""


def packed(document: str) -> bytes:
    """The document, compressed."""
    packing = zlib.compressobj(9, zdict=_DICTIONARY)
    return packing.compress(document.encode()) + packing.flush()


def unpacked(stored: bytes) -> bytes:
    """The inverse of `packed`, and of zlib.compress. Raises ValueError for anything else."""
    unpacking = zlib.decompressobj(zdict=_DICTIONARY)
    try:
        document = unpacking.decompress(stored)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof:
        raise ValueError("the compressed document ends too early")
    return document


def packed_text(document: str) -> str:
    """As `packed`, for a column of text."""
    return b64encode(packed(document)).decode()


def unpacked_text(stored: str) -> str | bytes:
    """The inverse of `packed_text`; JSON is returned as it is. Raises ValueError for anything else."""
    return stored if stored.startswith("{") else unpacked(b64decode(stored, validate=True))
