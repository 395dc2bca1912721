"""The calls that this package makes, and the IAM policy that allows only these.

Conditions limit what can be done to machines and networks to those that carry Tradewind's tag
(docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from providers.policy import Call, PolicyDocument, Store, Use, permissions

INSTALL = "tradewind-install"
"""The tag that everything is created with."""
SERVICES = ["spot.amazonaws.com", "ec2fleet.amazonaws.com"]
"""Services that create a role in an account at its first spot machine and its first fleet."""

CALLS = (
    *(
        Call(name, Use.PRICES)
        for name in (
            "ec2:DescribeRegions",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeSpotPriceHistory",
            "ec2:GetSpotPlacementScores",
            "pricing:GetProducts",
        )
    ),
    *(
        Call(name, Use.MACHINES)
        for name in (
            "ec2:RunInstances",
            "ec2:CreateLaunchTemplate",
            "ec2:DescribeLaunchTemplates",
            "ec2:CreateFleet",
            "ec2:DescribeFleets",
            "ec2:DescribeInstances",
            "ec2:DescribeSpotInstanceRequests",
            "ec2:DescribeImages",
            "ec2:DescribeVpcs",
            "ec2:DescribeSubnets",
            "ec2:DescribeInternetGateways",
            "ec2:DescribeSecurityGroups",
            "ssm:GetParameter",
            "servicequotas:ListServiceQuotas",
            "ec2:CreateTags",
            "ec2:TerminateInstances",
            "ec2:DeleteLaunchTemplate",
            "iam:CreateServiceLinkedRole",
        )
    ),
    *(
        Call(name, Use.NETWORKS)
        for name in (
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribeAvailabilityZones",
            "ec2:DescribeRouteTables",
            "ec2:CreateVpc",
            "ec2:CreateSubnet",
            "ec2:CreateInternetGateway",
            "ec2:AttachInternetGateway",
            "ec2:CreateRoute",
            "ec2:ReplaceRoute",
            "ec2:CreateSecurityGroup",
            "ec2:AuthorizeSecurityGroupIngress",
            "ec2:RevokeSecurityGroupIngress",
            "ec2:DeleteSecurityGroup",
            "ec2:DeleteSubnet",
            "ec2:DetachInternetGateway",
            "ec2:DeleteInternetGateway",
            "ec2:DeleteVpc",
            "ec2:DeleteLaunchTemplate",
        )
    ),
    *(
        Call(name, Use.BUCKET)
        for name in (
            "s3:CreateBucket",
            "s3:TagResource",
            "s3:GetBucketTagging",
            "s3:GetBucketLocation",
            "s3:GetBucketPublicAccessBlock",
            "s3:PutBucketPublicAccessBlock",
            "s3:GetBucketVersioning",
            "s3:PutBucketVersioning",
            "s3:GetLifecycleConfiguration",
            "s3:PutLifecycleConfiguration",
            "s3:ListBucket",
            "s3:DeleteBucket",
        )
    ),
    *(
        Call(name, Use.STORE)
        for name in (
            "s3:GetObject",
            "s3:PutObject",
            "s3:DeleteObject",
            "s3:AbortMultipartUpload",
            "s3:ListBucket",
            "s3:GetBucketVersioning",
            "s3:GetLifecycleConfiguration",
            "sts:GetFederationToken",
            "sts:AssumeRole",
        )
    ),
)
"""`sts:GetCallerIdentity` is not among them: it needs no permission."""

_OWN = {"StringLike": {f"aws:ResourceTag/{INSTALL}": "*"}}
_CREATING = [
    "RunInstances",
    "CreateLaunchTemplate",
    "CreateFleet",
    "CreateVpc",
    "CreateSubnet",
    "CreateInternetGateway",
    "CreateSecurityGroup",
]
_RESTRICTED: dict[str, tuple[dict[str, Any], ...]] = {
    "ec2:CreateTags": ({"StringEquals": {"ec2:CreateAction": _CREATING}}, _OWN),
    "ec2:TerminateInstances": (_OWN,),
    "ec2:DeleteLaunchTemplate": (_OWN,),
    "iam:CreateServiceLinkedRole": ({"StringEquals": {"iam:AWSServiceName": SERVICES}},),
    **dict.fromkeys(
        (
            "ec2:AuthorizeSecurityGroupIngress",
            "ec2:RevokeSecurityGroupIngress",
            "ec2:DeleteSecurityGroup",
            "ec2:DeleteSubnet",
            "ec2:DetachInternetGateway",
            "ec2:DeleteInternetGateway",
            "ec2:DeleteVpc",
        ),
        (_OWN,),
    ),
}
"""Permission -> the conditions under which it is granted; any one of them is enough."""
_FOLDER = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_BUCKET = ("s3:ListBucket", "s3:GetBucketVersioning", "s3:GetLifecycleConfiguration")


def policy(uses: Collection[Use], store: Store | None = None) -> PolicyDocument:
    """The policy for these uses."""
    statements: list[dict[str, Any]] = []
    if Use.PRICES in uses:
        statements.append(_allow("TradewindReadsPrices", permissions(CALLS, Use.PRICES)))
    for use, sid in ((Use.MACHINES, "TradewindRentsMachines"), (Use.NETWORKS, "TradewindMakesNetworks")):
        if use in uses:
            wanted = permissions(CALLS, use)
            statements.append(_allow(sid, [each for each in wanted if each not in _RESTRICTED]))
            statements += _restricted([each for each in wanted if each in _RESTRICTED])
    if Use.BUCKET in uses and store is not None:
        bucket = f"arn:aws:s3:::{store.bucket}"
        statements.append(_allow("TradewindMakesItsBucket", permissions(CALLS, Use.BUCKET), bucket))
    if Use.STORE in uses and store is not None:
        statements += _of_store(store)
    text = json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=2)
    apply = "aws iam create-policy --policy-name tradewind --policy-document file://policy.json; aws iam "
    apply += "attach-user-policy --user-name USER --policy-arn arn:aws:iam::ACCOUNT:policy/tradewind"
    return PolicyDocument(text, "json", apply)


def statement_of(permission: str) -> str:
    """The statement that grants one permission, on one line."""
    conditions: dict[str, Any] = {}
    for each in _RESTRICTED.get(permission, ())[-1:]:
        conditions = {"Condition": each}
    return json.dumps({"Effect": "Allow", "Action": permission, "Resource": "*", **conditions})


def _restricted(wanted: list[str]) -> Iterator[dict[str, Any]]:
    """A statement for each condition; permissions with the same conditions share it."""
    alike: dict[str, list[str]] = {}
    for each in wanted:
        for condition in _RESTRICTED[each]:
            alike.setdefault(json.dumps(condition), []).append(each)
    for text, actions in alike.items():
        names = [each.partition(":")[2] for each in actions]
        sid = f"Tradewind{names[0]}" if len(names) == 1 else f"TradewindOwn{names[0]}AndOthers"
        yield {**_allow(sid, actions), "Condition": json.loads(text)}


def _of_store(store: Store) -> Iterator[dict[str, Any]]:
    """What the control plane does with its bucket, and how it gives machines access to their job's folder."""
    bucket, below = f"arn:aws:s3:::{store.bucket}", f"{store.prefix}/*" if store.prefix else "*"
    yield _allow("TradewindKeepsItsStore", list(_FOLDER), f"{bucket}/{below}")
    # Not limited to the prefix: without this permission S3 answers 403, not 404, to a request for a missing object.
    yield _allow("TradewindListsItsStore", list(_BUCKET), bucket)
    if store.role is None:
        yield _allow("TradewindLendsAccess", ["sts:GetFederationToken"])
    else:
        yield _allow("TradewindLendsAccess", ["sts:AssumeRole"], store.role)


def _allow(sid: str, actions: list[str], resource: str = "*") -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
