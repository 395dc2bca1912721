"""Asks AWS what a loopback cannot answer, and writes the replies, without anything that identifies the account.

    python infra/record_replies.py REGION IMAGE BUCKET_URL FILE

Called by infra/verify_cloud.sh. All calls read, are dry runs, or are meant to be refused; it rents nothing. Each reply
can become a fixture: what AWS says to a request of ours, word for word but for names.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from providers.aws.session import Connections, to_provider_error

_NAMES = (
    (re.compile(r"\barn:[\w-]+:[^\s\"']+"), "arn:aws:...:REMOVED"),
    (re.compile(r"\b\d{12}\b"), "123456789012"),
    (
        re.compile(r"\b(i|ami|vpc|subnet|sg|eni|vol|igw|rtb|sir|r|eipalloc|snap)-[0-9a-f]{8,17}\b"),
        r"\1-0123456789abcdef0",
    ),
    (re.compile(r"\b(?:AKIA|ASIA|AIDA|AROA)[A-Z0-9]{12,}\b"), "AKIAREMOVEDREMOVED00"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"), "192.0.2.1"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "00000000-0000-0000-0000-000000000000"),
    (re.compile(r"Encoded authorization failure message: \S+"), "Encoded authorization failure message: REMOVED"),
)
_SECRET_KEYS = {"UserId", "Account", "HostId", "RequestId", "HTTPHeaders", "OwnerId", "SessionToken", "SecretAccessKey"}


def sanitised(value: Any, also: tuple[str, ...] = ()) -> Any:
    """A reply without ids, addresses, keys and the texts in `also`; its shape stays."""
    if isinstance(value, Mapping):
        return {key: "REMOVED" if key in _SECRET_KEYS else sanitised(item, also) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitised(item, also) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    for name in also:
        text = text.replace(name, "REMOVED")
    for pattern, replacement in _NAMES:
        text = pattern.sub(replacement, text)
    return text


def questions(connections: Connections, region: str, image: str, bucket: str) -> Mapping[str, Callable[[], Any]]:
    """What is asked, by what it is to show."""
    ec2 = connections.client("ec2", region, once=True)
    s3, sts = connections.client("s3", region), connections.client("sts", region)
    kind = {"InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1, "DryRun": True}
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}

    def missing_object_with_a_prefix() -> Any:
        """With a session that may list one prefix only: 404, or 403, for an object that is not there?"""
        listing = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{bucket}"}
        listing["Condition"] = {"StringLike": {"s3:prefix": "tradewind-verify/*"}}  # type: ignore[assignment]
        reading = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/tradewind-verify/*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [listing, reading]})
        lent = sts.get_federation_token(Name="tradewind-verify", DurationSeconds=900, Policy=policy)["Credentials"]
        import boto3

        limited = boto3.client(
            "s3", region_name=region, aws_access_key_id=lent["AccessKeyId"],
            aws_secret_access_key=lent["SecretAccessKey"], aws_session_token=lent["SessionToken"],
        )  # fmt: skip
        return limited.get_object(Bucket=bucket, Key="tradewind-verify/missing")

    return {
        "who asks": sts.get_caller_identity,
        "a launch that is allowed": lambda: ec2.run_instances(**kind, **spot, ImageId=image),
        "an image that does not exist": lambda: ec2.run_instances(**kind, ImageId="ami-00000000000000000"),
        "a type that does not exist": lambda: ec2.run_instances(
            **{**kind, "InstanceType": "t3.gigantic"}, ImageId=image
        ),
        "a zone of another region": lambda: ec2.run_instances(
            **kind, ImageId=image, Placement={"AvailabilityZoneId": "xxx1-az9"}
        ),
        "a machine that never was": lambda: ec2.terminate_instances(InstanceIds=["i-00000000000000000"]),
        "a tag for a machine that never was": lambda: ec2.create_tags(
            Resources=["i-00000000000000000"], Tags=[{"Key": "tradewind-install", "Value": "verify"}]
        ),
        "machines by an unknown token": lambda: ec2.describe_instances(
            Filters=[{"Name": "client-token", "Values": ["tradewind-verify-no-such-token"]}]
        ),
        "an object that is not there": lambda: s3.get_object(Bucket=bucket, Key="tradewind-verify/missing"),
        "an object that is not there, with a limited session": missing_object_with_a_prefix,
    }


def record(connections: Connections, region: str, image: str, bucket: str) -> dict[str, Any]:
    """Question -> the sanitised reply or refusal, and the error that Tradewind makes of it."""
    found: dict[str, Any] = {}
    for what, ask in questions(connections, region, image, bucket).items():
        try:
            reply = ask()
            found[what] = {"reply": sanitised({key: reply[key] for key in reply if key != "Body"}, (bucket,))}
        except ClientError as error:
            ours = to_provider_error(error)
            found[what] = {
                "operation": error.operation_name,
                "refusal": sanitised(error.response, (bucket,)),
                "read as": None if ours is None else type(ours).__name__,
            }
    return found


def main(region: str, image: str, bucket_url: str, file: str) -> int:
    """Write the file. Returns the exit code."""
    bucket = bucket_url.removeprefix("s3://").partition("/")[0]
    Path(file).write_text(json.dumps(record(Connections(), region, image, bucket), indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
