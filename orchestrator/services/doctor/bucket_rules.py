"""The rules of a bucket by which its store keeps, and bills, what was deleted or never completed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.services.doctor.blob_rules import blob_rules
from orchestrator.services.doctor.gcs_rules import gcs_rules
from orchestrator.services.doctor.rules import Rules
from orchestrator.services.doctor.s3_rules import s3_rules
from trainers.objects.services import BLOB, GCS, S3, Place, place_of

_READERS: Mapping[str, Callable[[Place], Rules]] = {S3.scheme: s3_rules, GCS.scheme: gcs_rules, BLOB.scheme: blob_rules}


def costly_rules(url: str) -> Rules:
    """The costly rules of the bucket of this URL, in which an object `.probe` was just written and deleted. Raises
    SiteError if there are no credentials for S3."""
    place = place_of(url)
    return _READERS[place.service.scheme](place)
