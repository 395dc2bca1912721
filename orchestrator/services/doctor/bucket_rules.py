"""The rules of a bucket by which its store keeps, and bills, deleted data and incomplete uploads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from orchestrator.services.doctor.blob_rules import blob_rules
from orchestrator.services.doctor.gcs_rules import gcs_rules
from orchestrator.services.doctor.rules import Rules
from orchestrator.services.doctor.s3_rules import s3_rules
from trainers.objects.services import BLOB, GCS, S3, Place, place_of


def costly_rules(url: str, azure: object = None) -> Rules:
    """The costly rules of the bucket of this URL, in which an object `.probe` was just written and deleted. `azure` is
    the provider, if it is enabled. Raises SiteError if there are no credentials for S3."""
    place = place_of(url)
    readers: Mapping[str, Callable[[Place], Rules]] = {
        S3.scheme: s3_rules,
        GCS.scheme: gcs_rules,
        BLOB.scheme: partial(blob_rules, azure=azure),
    }
    return readers[place.service.scheme](place)
