"""The rules of an S3 bucket by which it keeps, and bills, deleted data and incomplete uploads.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketVersioning.html
https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLifecycleConfiguration.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from xml.etree import ElementTree

from orchestrator.nodes.access.signing import Place as Region
from orchestrator.nodes.access.signing import Presigner, own_credentials, quoted, utc_now
from orchestrator.services.doctor.rules import Rules, ask
from trainers.objects.services import Place

VALID_S = 60
RIGHTS = "s3:GetBucketVersioning and s3:GetLifecycleConfiguration"
_Nodes = list[ElementTree.Element]


def s3_rules(place: Place) -> Rules:
    """The rules of the bucket. Raises SiteError if there are no credentials."""
    rules, versions = _of(place.bucket, "lifecycle", "Rule"), _of(place.bucket, "versioning", "Status")
    if rules is None or versions is None:
        return Rules(unchecked=f"its rules cannot be read, which needs {RIGHTS}")
    ours = [rule for rule in rules if _text(rule, "Status") == "Enabled" and _covers(rule, f"{place.prefix}/")]
    return Rules(tuple(_costly(place.bucket, ours, versions)))


def _costly(bucket: str, ours: _Nodes, versions: _Nodes) -> Iterator[tuple[str, str]]:
    if any(status.text == "Enabled" for status in versions) and not _any(ours, "NoncurrentVersionExpiration"):
        yield (
            "the bucket keeps, and bills, versions of all deleted or replaced data",
            f"aws s3api put-bucket-versioning --bucket {bucket} --versioning-configuration Status=Suspended",
        )
    if not _any(ours, "AbortIncompleteMultipartUpload"):
        yield (
            "the bucket keeps, and bills, parts of interrupted uploads",
            "add a life-cycle rule that aborts incomplete multipart uploads (docs/operations.md)",
        )


def _of(bucket: str, which: str, element: str) -> _Nodes | None:
    """The elements with this name in one of the bucket's configurations; None if it cannot be read."""
    signer = Presigner(own_credentials(), Region.of(os.environ), utc_now(), VALID_S)
    answer = ask(signer.url("GET", quoted(f"/{bucket}"), of=which))
    if not answer.good:
        return [] if b"NoSuchLifecycleConfiguration" in answer.body else None
    try:
        found = ElementTree.fromstring(answer.body)
    except ElementTree.ParseError:
        return None
    return [each for each in found.iter() if _name(each) == element]


def _covers(rule: ElementTree.Element, prefix: str) -> bool:
    """Whether a rule applies to all objects below `prefix`."""
    narrow = ("Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan")
    return prefix.startswith(_text(rule, "Prefix")) and not any(_any([rule], name) for name in narrow)


def _any(rules: _Nodes, name: str) -> bool:
    return any(_name(each) == name for rule in rules for each in rule.iter())


def _text(rule: ElementTree.Element, name: str) -> str:
    return next((each.text or "" for each in rule.iter() if _name(each) == name), "")


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
