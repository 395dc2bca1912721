"""The bucket of an installation on S3. The call that creates it sets a tag that names the installation.

S3 sets the rules of a bucket by separate calls. If the process dies between them, the next `make_bucket` sets the
missing rules. DeleteBucket removes empty buckets only.
https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateBucket.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from providers.aws.calls import INSTALL
from providers.aws.codes import NO_BUCKET
from providers.aws.rows import PROVIDER
from providers.aws.session import Connections, error_code
from providers.bucket import ABORT_AFTER_DAYS, AT_MOST, Bucket, Contents, not_empty, not_ours, taken

DEFAULT_REGION = "us-east-1"
"""S3's default region: CreateBucket does not accept its name, and GetBucketLocation does not return it."""
_LOCATIONS = {None: DEFAULT_REGION, "EU": "eu-west-1"}
"""Location names of buckets from S3's first years, such as EU."""
_PRIVATE = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
_ABORT = {
    "ID": "tradewind: abort unfinished uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": ABORT_AFTER_DAYS},
}
_UNSET = ("NoSuchTagSet", "NoSuchPublicAccessBlockConfiguration", "NoSuchLifecycleConfiguration")


class Buckets:
    """Methods raise botocore's exceptions and ProviderErrors."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def bucket(self, install: str, name: str) -> Bucket | None:
        """See MakesBuckets."""
        s3 = self._connections.client("s3", self._connections.home_region)
        if (tags := _tags(s3, name)) is None:
            return None
        own = tags.get(INSTALL) == install
        location = s3.get_bucket_location(Bucket=name).get("LocationConstraint")
        region = _LOCATIONS.get(location, location)
        missing = tuple(what for what, _ in _steps(s3, name)) if own else ()
        return Bucket(PROVIDER, _url(name), region, own, missing)

    def make_bucket(self, install: str, name: str, region: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        s3 = self._connections.client("s3", region)
        tags = _tags(s3, name)
        if tags is None:
            if not _make(s3, install, name, region):
                return
            progress(f"bucket {_url(name)} was made in {region}")
        elif tags.get(INSTALL) != install:
            return
        for what, put in _steps(s3, name):
            put()
            progress(f"bucket {_url(name)}: {what} was set")

    def remove_bucket(self, install: str, name: str, progress: Callable[[str], None]) -> None:
        """See MakesBuckets."""
        s3 = self._connections.client("s3", self._connections.home_region)
        tags, command = _tags(s3, name), f"aws s3 rb --force {_url(name)}"
        if tags is None:
            return
        if tags.get(INSTALL) != install:
            progress(not_ours(_url(name), command))
            return
        holds = _contents(s3, name)
        if holds.objects:
            progress(not_empty(_url(name), holds, command))
            return
        try:
            s3.delete_bucket(Bucket=name)
        except Exception as error:
            if error_code(error) in NO_BUCKET:
                return
            if error_code(error) != "BucketNotEmpty":
                raise
            progress(not_empty(_url(name), "objects", command))  # objects written since the listing, or old versions
            return
        progress(f"bucket {_url(name)} was removed")


def _make(s3: Any, install: str, name: str, region: str) -> bool:
    """False if the account had it before. If an earlier call made it and the answer was lost, the next call sees its
    tag. Raises SetupError."""
    asked: dict[str, Any] = {"Tags": [{"Key": INSTALL, "Value": install}]}
    if region != DEFAULT_REGION:
        asked["LocationConstraint"] = region
    try:
        s3.create_bucket(Bucket=name, CreateBucketConfiguration=asked)
    except Exception as error:
        if error_code(error) == "BucketAlreadyExists":
            raise _taken(name) from error
        if error_code(error) != "BucketAlreadyOwnedByYou":
            raise
        return bool(_tags(s3, name, present=True).get(INSTALL) == install)
    return True


def _tags(s3: Any, name: str, *, present: bool = False) -> Any:
    """The tags of a bucket; None if it does not exist. Raises SetupError for one of another account."""
    try:
        found = s3.get_bucket_tagging(Bucket=name)
    except Exception as error:
        code = error_code(error)
        if code == "NoSuchTagSet":
            return {}
        if code in NO_BUCKET and not present:
            return None
        if code == "AccessDenied" and "not authorized" not in str(error):  # another account's: S3 names no action
            raise _taken(name) from error
        raise
    return {tag["Key"]: tag["Value"] for tag in found["TagSet"]}


def _taken(name: str) -> Exception:
    return taken(name, "store_root in tradewind.toml; if it is yours, allow s3:GetBucketTagging")


def _steps(s3: Any, name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What a bucket made by Tradewind lacks, and the call that sets it."""
    private = _set(s3.get_public_access_block, name).get("PublicAccessBlockConfiguration", {})
    if not all(private.get(each) for each in _PRIVATE):
        blocked = dict.fromkeys(_PRIVATE, True)
        yield (
            "block of public access",
            lambda: s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=blocked),
        )
    if _set(s3.get_bucket_versioning, name).get("Status") == "Enabled":
        suspended = {"Status": "Suspended"}
        yield (
            "keeping no versions",
            lambda: s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=suspended),
        )
    rules = _set(s3.get_bucket_lifecycle_configuration, name).get("Rules", [])
    if not any(_aborts(rule) for rule in rules):
        complete = {"Rules": [*rules, _ABORT]}
        yield (
            "the rule that aborts unfinished uploads",
            lambda: s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration=complete),
        )


def _set(get: Callable[..., Any], name: str) -> Mapping[str, Any]:
    """A configuration of a bucket; empty if it is not set."""
    try:
        found: Mapping[str, Any] = get(Bucket=name)
    except Exception as error:
        if error_code(error) in _UNSET:
            return {}
        raise
    return found


def _aborts(rule: Mapping[str, Any]) -> bool:
    """Whether a rule aborts all uploads that were not finished in time, not only some of them."""
    days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
    everywhere = not rule.get("Prefix") and rule.get("Filter", {}) in ({}, {"Prefix": ""})
    return rule.get("Status") == "Enabled" and days is not None and days <= ABORT_AFTER_DAYS and everywhere


def _contents(s3: Any, name: str) -> Contents:
    page = s3.list_objects_v2(Bucket=name, MaxKeys=AT_MOST)
    sizes = [each["Size"] for each in page.get("Contents", [])]
    return Contents(len(sizes), sum(sizes), bool(page["IsTruncated"]))


def _url(name: str) -> str:
    return f"s3://{name}"
