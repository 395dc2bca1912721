"""The rules of a bucket of S3 by which it keeps, and bills, what was deleted or never completed.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketVersioning.html
https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLifecycleConfiguration.html
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from xml.etree import ElementTree

from orchestrator.nodes.access.signing import Place, Presigner, own_credentials, quoted, utc_now
from trainers.objects.services import S3, place_of

ANSWER_S, VALID_S = 10.0, 60
MOST_ANSWER_BYTES = 1 << 20
_Nodes = list[ElementTree.Element]


def costly_rules(url: str) -> Iterator[tuple[str, str]]:
    """(what the bucket of this URL does, the remedy) of each such rule. None of other stores than S3, nor of one that
    does not let us look. Raises SiteError if there are no credentials."""
    place = place_of(url)
    if place.service is not S3:
        return
    rules, versions = _of(place.bucket, "lifecycle", "Rule"), _of(place.bucket, "versioning", "Status")
    if rules is None or versions is None:
        return
    ours = [rule for rule in rules if _text(rule, "Status") == "Enabled" and _covers(rule, f"{place.prefix}/")]
    if any(status.text == "Enabled" for status in versions) and not _any(ours, "NoncurrentVersionExpiration"):
        yield (
            "the bucket keeps, and bills, versions of all that is deleted or replaced",
            f"aws s3api put-bucket-versioning --bucket {place.bucket} --versioning-configuration Status=Suspended",
        )
    if not _any(ours, "AbortIncompleteMultipartUpload"):
        yield (
            "the bucket keeps, and bills, parts of uploads that were interrupted",
            "add a life-cycle rule that aborts incomplete multipart uploads (docs/operations.md)",
        )


def _of(bucket: str, which: str, element: str) -> _Nodes | None:
    """The elements of this name in one of the bucket's configurations; None if it cannot be read."""
    signer = Presigner(own_credentials(), Place.of(os.environ), utc_now(), VALID_S)
    try:
        with urllib.request.urlopen(signer.url("GET", quoted(f"/{bucket}"), of=which), timeout=ANSWER_S) as answer:
            found = ElementTree.fromstring(answer.read(MOST_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        return [] if b"NoSuchLifecycleConfiguration" in error.read(MOST_ANSWER_BYTES) else None
    except (OSError, HTTPException, ElementTree.ParseError):
        return None
    return [each for each in found.iter() if _name(each) == element]


def _covers(rule: ElementTree.Element, prefix: str) -> bool:
    """Whether a rule holds for all objects below `prefix`."""
    narrow = ("Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan")
    return prefix.startswith(_text(rule, "Prefix")) and not any(_any([rule], name) for name in narrow)


def _any(rules: _Nodes, name: str) -> bool:
    return any(_name(each) == name for rule in rules for each in rule.iter())


def _text(rule: ElementTree.Element, name: str) -> str:
    return next((each.text or "" for each in rule.iter() if _name(each) == name), "")


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
