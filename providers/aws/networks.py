"""The networks of machines on AWS: in each region a VPC with a subnet per zone, outbound access, and no inbound access.

Every part is found by its tag INSTALL, which the call that creates it sets. The VPC's main route table has the route to
the internet gateway, so it is removed with the VPC. The security group allows connections between its members, for jobs
on several machines, and none from elsewhere. If there are several VPCs (CreateVpc has no token, so a lost answer may
leave one behind), the one with the smallest id is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network
from typing import Any

from providers.aws.calls import INSTALL
from providers.aws.codes import NO_NETWORK, NO_TEMPLATE
from providers.aws.regions import pages_of
from providers.aws.rows import PROVIDER, Row
from providers.aws.session import Connections, error_code, to_provider_error
from providers.clock import Clock
from providers.errors import PermissionDeniedError, SetupError, UnavailableError
from providers.network import Network, NetworkPart

FRESH_S = 3600.0
LAG_S = 120.0
"""For this long EC2 may not show what it has created; this process remembers it."""
GROUP = "tradewind"
BLOCK = IPv4Network("10.83.0.0/16")
SUBNET_BITS = 20
EVERYWHERE = "0.0.0.0/0"
SEES_TEMPLATES = "ec2:DescribeLaunchTemplates"


class Networks:
    """Methods raise botocore's exceptions and ProviderErrors."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._known: dict[tuple[str, str], tuple[float, _Region]] = {}
        self._made: dict[tuple[str, str], tuple[float, _Region]] = {}

    def place(self, install: str, region: str, zone: str) -> tuple[str, str]:
        """The subnet and the security group of machines in a zone; looked up once an hour. Raises SetupError."""
        now_s = self._clock.monotonic_s()
        seen_s, here = self._known.get((install, region), (0.0, None))
        if here is None or now_s - seen_s > FRESH_S or zone not in here.subnets:
            here = self._region(install, region)
        if here.group is None or zone not in here.subnets:
            self.forget(install, region)
            raise SetupError(
                f"this installation has no network in {zone}" if here.subnets else f"there is no network in {region}",
                hint="create it: tradewind up --cloud aws",
                scope="region",
            )
        self._known[install, region] = now_s, here
        return here.subnets[zone], here.group["GroupId"]

    def forget(self, install: str, region: str) -> None:
        """Look the network up again at the next launch, because EC2 reports that a part of it is gone."""
        self._known.pop((install, region), None)
        self._made.pop((install, region), None)

    def network(self, install: str, region: str, *, wanted: bool) -> Network | None:
        """What exists in the region; None if nothing exists and nothing is `wanted`."""
        here = self._region(install, region)
        if not wanted:
            return Network(PROVIDER, region, here.parts, (), wanted) if here.parts else None
        here.zones = self._zones(region)
        return Network(PROVIDER, region, here.parts, tuple(what for what, _ in here.steps()))

    def set_up(self, install: str, region: str, progress: Callable[[str], None]) -> None:
        """Create what is missing, in an order in which each part can be found again."""
        here = self._region(install, region)
        here.zones = self._zones(region)
        self._made[install, region] = self._clock.monotonic_s(), here
        try:
            for what, make in here.steps():
                made = make()
                progress(f"{region}: {what}{f' {made}' if made else ''} was made")
        except Exception as error:
            if error_code(error) in NO_NETWORK:
                raise UnavailableError(f"EC2 does not show yet what it has just created in {region}") from error
            raise

    def tear_down(self, install: str, region: str, progress: Callable[[str], None]) -> None:
        """Remove all parts; parts that others depend on come last."""
        here = self._region(install, region)
        ec2 = self._connections.client("ec2", region)

        def remove_gateway(**which: str) -> None:
            row = next(row for row in here.gateways if row["InternetGatewayId"] == which["InternetGatewayId"])
            for attached in row["Attachments"]:
                _unless_gone(partial(ec2.detach_internet_gateway, **which, VpcId=attached["VpcId"]))
            ec2.delete_internet_gateway(**which)

        removals = (
            ec2.delete_launch_template,
            ec2.delete_security_group,
            ec2.delete_subnet,
            remove_gateway,
            ec2.delete_vpc,
        )
        for (key, kind), rows, remove in zip(_KINDS.items(), here.rows, removals, strict=True):
            for row in rows:
                _unless_gone(partial(remove, **{key: row[key]}))
                progress(f"{region}: {kind} {row[key]} was removed")
        self.forget(install, region)

    def _region(self, install: str, region: str) -> _Region:
        ec2 = self._connections.client("ec2", region)
        own = [{"Name": f"tag:{INSTALL}", "Values": [install]}]

        def rows(operation: str, name: str, key: str) -> list[Row]:
            found = [row for page in pages_of(ec2, operation, Filters=own) for row in page[name]]
            return sorted(found, key=lambda row: str(row[key]))

        def templates() -> list[Row]:
            try:
                return rows("describe_launch_templates", "LaunchTemplates", "LaunchTemplateId")
            except Exception as error:
                known = to_provider_error(error)
                if isinstance(known, PermissionDeniedError) and known.action == SEES_TEMPLATES:
                    return []  # with the policy of an earlier version, there are no templates
                raise

        here = _Region(
            self._connections.client("ec2", region, once=True),
            install,
            templates(),
            rows("describe_security_groups", "SecurityGroups", "GroupId"),
            rows("describe_subnets", "Subnets", "SubnetId"),
            rows("describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
            rows("describe_vpcs", "Vpcs", "VpcId"),
        )
        made_s, made = self._made.get((install, region), (0.0, here))
        if self._clock.monotonic_s() - made_s < LAG_S:
            here.add(made)
        here.vpc = next((row["VpcId"] for row in here.vpcs), None)
        return here

    def _zones(self, region: str) -> list[str]:
        """The ids of the zones that the account may use."""
        only = [{"Name": "zone-type", "Values": ["availability-zone"]}, {"Name": "state", "Values": ["available"]}]
        rows = self._connections.client("ec2", region).describe_availability_zones(Filters=only)["AvailabilityZones"]
        return sorted(row["ZoneId"] for row in rows)


@dataclass
class _Region:
    """What a region has, with the calls that create what it lacks. They are sent only once, since EC2 may have carried
    out a call without answering it."""

    ec2: Any
    install: str
    templates: list[Row]
    groups: list[Row]
    all_subnets: list[Row]
    gateways: list[Row]
    vpcs: list[Row]
    vpc: str | None = None
    zones: list[str] = field(default_factory=list)

    def add(self, made: _Region) -> None:
        """Also what was created recently and is not shown yet."""
        for key, shown, others in zip(_KINDS, self.rows, made.rows, strict=True):
            known = {row[key] for row in shown}
            shown += [row for row in others if row[key] not in known]

    @property
    def rows(self) -> tuple[list[Row], ...]:
        """All parts, in the order in which they can be removed."""
        return self.templates, self.groups, self.all_subnets, self.gateways, self.vpcs

    @property
    def parts(self) -> tuple[NetworkPart, ...]:
        named = zip(_KINDS.items(), self.rows, strict=True)
        return tuple(NetworkPart(kind, row[key]) for (key, kind), rows in named for row in rows)

    @property
    def subnets(self) -> dict[str, str]:
        """By zone."""
        return {row["AvailabilityZoneId"]: row["SubnetId"] for row in self.all_subnets if row["VpcId"] == self.vpc}

    @property
    def group(self) -> Row | None:
        return next((row for row in self.groups if row["VpcId"] == self.vpc), None)

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """What is missing, and the call that creates it and returns its id. Each step may rely on earlier ones."""
        if self.vpc is None:
            yield "network", self._make_vpc
        if not self.gateways:
            yield "internet gateway", self._make_gateway
        if not self._attached():
            yield "attachment of the internet gateway", self._attach
        if self.vpc is None or not self._way_out():
            yield "route to the internet", self._make_route
        if self.group is None:
            yield "firewall", self._make_group
        if self.group is None or not any(map(self._own, self.group["IpPermissions"])):
            yield "firewall rule for connections between machines", self._admit_members
        for rule in [] if self.group is None else self.group["IpPermissions"]:
            if not self._own(rule):
                yield f"removal of the firewall rule {_text_of(rule)}", partial(self._revoke, rule)
        for zone in self.zones:
            if zone not in self.subnets:
                yield f"subnet in {zone}", partial(self._make_subnet, zone)

    def _make_vpc(self) -> str:
        row = self.ec2.create_vpc(CidrBlock=str(BLOCK), TagSpecifications=self._tagged("vpc"))["Vpc"]
        self.vpcs.append(row)
        self.vpc = str(row["VpcId"])
        return self.vpc

    def _make_gateway(self) -> str:
        tagged = self._tagged("internet-gateway")
        row = self.ec2.create_internet_gateway(TagSpecifications=tagged)["InternetGateway"]
        self.gateways.append(row)
        return str(row["InternetGatewayId"])

    def _attach(self) -> str:
        self.ec2.attach_internet_gateway(InternetGatewayId=self._gateway, VpcId=self.vpc)
        row = next(row for row in self.gateways if row["InternetGatewayId"] == self._gateway)
        self.gateways[self.gateways.index(row)] = {**row, "Attachments": [{"VpcId": self.vpc}]}
        return ""

    def _make_route(self) -> str:
        table = self._route_table()
        present = any(row.get("DestinationCidrBlock") == EVERYWHERE for row in table["Routes"])
        put = self.ec2.replace_route if present else self.ec2.create_route
        put(RouteTableId=table["RouteTableId"], DestinationCidrBlock=EVERYWHERE, GatewayId=self._gateway)
        return ""

    def _make_group(self) -> str:
        about = {"GroupName": GROUP, "Description": "Machines of Tradewind: no inbound connections from outside"}
        tagged = self._tagged("security-group")
        group = str(self.ec2.create_security_group(**about, VpcId=self.vpc, TagSpecifications=tagged)["GroupId"])
        self.groups.append({"GroupId": group, "VpcId": self.vpc, "IpPermissions": []})
        return group

    def _admit_members(self) -> str:
        assert self.group is not None
        group = self.group["GroupId"]
        members = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[members])
        return ""

    def _revoke(self, rule: Row) -> str:
        assert self.group is not None
        self.ec2.revoke_security_group_ingress(GroupId=self.group["GroupId"], IpPermissions=[rule])
        return ""

    def _make_subnet(self, zone: str) -> str:
        taken = {row["CidrBlock"] for row in self.all_subnets if row["VpcId"] == self.vpc}
        free = next(str(each) for each in BLOCK.subnets(new_prefix=SUBNET_BITS) if str(each) not in taken)
        tagged = self._tagged("subnet")
        asked = {"VpcId": self.vpc, "AvailabilityZoneId": zone, "CidrBlock": free, "TagSpecifications": tagged}
        row = self.ec2.create_subnet(**asked)["Subnet"]
        self.all_subnets.append(row)
        return str(row["SubnetId"])

    def _attached(self) -> Row | None:
        return next((row for row in self.gateways if self.vpc in [each["VpcId"] for each in row["Attachments"]]), None)

    @property
    def _gateway(self) -> str:
        return str((self._attached() or self.gateways[0])["InternetGatewayId"])

    def _route_table(self) -> Row:
        main = [{"Name": "vpc-id", "Values": [self.vpc]}, {"Name": "association.main", "Values": ["true"]}]
        (table,) = self.ec2.describe_route_tables(Filters=main)["RouteTables"]
        return dict(table)

    def _way_out(self) -> bool:
        return bool(self.gateways) and any(
            (row.get("DestinationCidrBlock"), row.get("GatewayId")) == (EVERYWHERE, self._gateway)
            and row.get("State", "active") == "active"
            for row in self._route_table()["Routes"]
        )

    def _own(self, rule: Row) -> bool:
        """Whether a rule admits only members of the group."""
        assert self.group is not None
        others = any(rule.get(kind) for kind in ("IpRanges", "Ipv6Ranges", "PrefixListIds"))
        members = [each["GroupId"] for each in rule.get("UserIdGroupPairs", [])]
        return rule["IpProtocol"] == "-1" and members == [self.group["GroupId"]] and not others

    def _tagged(self, kind: str) -> list[dict[str, Any]]:
        tags = [{"Key": INSTALL, "Value": self.install}, {"Key": "Name", "Value": GROUP}]
        return [{"ResourceType": kind, "Tags": tags}]


_KINDS = {
    "LaunchTemplateId": "launch template",  # from a launch in any of several zones (providers.aws.fleets)
    "GroupId": "firewall",
    "SubnetId": "subnet",
    "InternetGatewayId": "internet gateway",
    "VpcId": "network",
}


def _text_of(rule: Row) -> str:
    sources = [each.get("CidrIp") or each.get("CidrIpv6") for each in (*rule["IpRanges"], *rule.get("Ipv6Ranges", []))]
    sources += [each["GroupId"] for each in rule.get("UserIdGroupPairs", [])]
    port = f" port {rule['FromPort']}" if rule.get("FromPort", -1) >= 0 else ""
    return f"for {', '.join(map(str, sources)) or 'others'}{port}"


def _unless_gone(remove: Callable[[], Any]) -> None:
    try:
        remove()
    except Exception as error:
        if error_code(error) not in (*NO_NETWORK, *NO_TEMPLATE):
            raise
