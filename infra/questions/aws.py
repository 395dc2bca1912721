"""The questions for AWS."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from providers.aws.session import Connections, to_provider_error
from providers.errors import ProviderError


def questions(
    region: str, image: str, store_url: str, connections: Any = None
) -> tuple[dict[str, Callable[[], Any]], tuple[str, ...]]:
    """(the questions, names to remove from the replies). Raises botocore's exceptions."""
    connections = connections or Connections()
    ec2 = connections.client("ec2", region, once=True)
    s3, sts = connections.client("s3", region), connections.client("sts", region)
    bucket = store_url.removeprefix("s3://").partition("/")[0]
    kind = {"InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1, "DryRun": True}
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}

    def missing_object_with_a_prefix() -> Any:
        """With a session that may list only one prefix: is a missing object answered with 404 or 403?"""
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

    asked = {
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
    }
    if store_url.startswith("s3://"):
        asked["an object that is not there"] = lambda: s3.get_object(Bucket=bucket, Key="tradewind-verify/missing")
        asked["an object that is not there, with a limited session"] = missing_object_with_a_prefix
    return asked, ()


def refused(error: Exception) -> tuple[Any, ProviderError | None] | None:
    """See infra.record_replies.Refused."""
    if not isinstance(error, ClientError):
        return None
    return {"operation": error.operation_name, **error.response}, to_provider_error(error)
