"""The networks of the loopback EC2: moto's, plus what moto leaves out, so that they are as hard to remove as AWS's.

moto removes what is in use. Here a machine that has not ended holds its subnet, its security group and the internet
gateway of its network, and a network with a gateway is not removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moto.core.request import Request as MotoRequest
from moto.ec2.models import ec2_backends
from moto.ec2.responses import EC2Response

from tests.clouds.aws import error, signed_region
from tests.clouds.server import Request, Response

ACTIONS = {
    *("CreateVpc", "DeleteVpc", "DescribeVpcs", "CreateSubnet", "DeleteSubnet", "DescribeSubnets"),
    *("CreateInternetGateway", "AttachInternetGateway", "DetachInternetGateway", "DeleteInternetGateway"),
    *("DescribeInternetGateways", "DescribeRouteTables", "CreateRoute", "ReplaceRoute"),
    *("CreateSecurityGroup", "DeleteSecurityGroup", "DescribeSecurityGroups"),
    *("AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"),
}
EVERYBODY = [{"CidrIp": "0.0.0.0/0"}]
_ACCOUNT = "123456789012"

Card = Mapping[str, Any]


class Networks:
    """`cards` are the network interfaces of the machines of a region that have not ended. There is one such cloud: a
    new one has no networks but AWS's own."""

    def __init__(self) -> None:
        self.cards: Callable[[str], Iterable[Card]] = lambda _: ()
        for region, here in ec2_backends[_ACCOUNT].items():
            for vpc in [each.id for each in here.vpcs.values() if not each.is_default]:
                self.cut(region, vpc)
            here.internet_gateways.clear()

    def __call__(self, request: Request) -> Response:
        form, region = request.form, signed_region(request)
        if held := self._held(form, region):
            return error("DependencyViolation", f"{held} has a dependent object", 400)
        url = f"http://ec2.{region}.amazonaws.com/"
        sent = MotoRequest.from_primitives("POST", url, request.headers, request.body)
        status, _, body = EC2Response.dispatch(sent, url, sent.headers)
        return Response(status, body.encode() if isinstance(body, str) else body, "text/xml;charset=UTF-8")

    def parts(self, region: str) -> list[str]:
        """The ids of everything that is not AWS's own default network."""
        here = ec2_backends[_ACCOUNT][region]
        own = {vpc.id for vpc in here.vpcs.values() if not vpc.is_default}
        subnets = [each for zone in here.subnets.values() for each in zone.values() if each.vpc_id in own]
        groups = [each for vpc, each in here.groups.items() if vpc in own for each in each.values()]
        named = [each.id for each in groups if each.name != "default"]
        return sorted([*own, *(each.id for each in subnets), *named, *here.internet_gateways])

    def tags(self, part: str) -> dict[str, str]:
        """The tags of a part, by its id."""
        found = [here.tags.get(part, {}) for here in ec2_backends[_ACCOUNT].values()]
        return {key: value for tags in found for key, value in tags.items()}

    def others(self, region: str) -> str:
        """The id of the network that AWS itself made."""
        return next(each.id for each in ec2_backends[_ACCOUNT][region].vpcs.values() if each.is_default)

    def spoil(self, region: str) -> None:
        """Somebody opens the firewalls and leads the routes elsewhere."""
        here = ec2_backends[_ACCOUNT][region]
        own = [each.id for each in here.vpcs.values() if not each.is_default]
        for group in [each for vpc in own for each in here.groups.get(vpc, {}).values() if each.name != "default"]:
            here.authorize_security_group_ingress(group.id, "tcp", "22", "22", EVERYBODY, vpc_id=group.vpc_id)
        for table in [each for each in here.route_tables.values() if each.vpc_id in own]:
            gateway = here.create_internet_gateway()
            if any(route.destination_cidr_block == "0.0.0.0/0" for route in table.routes):
                here.replace_route(table.id, "0.0.0.0/0", gateway_id=gateway.id)

    def cut(self, region: str, vpc: str) -> None:
        """Somebody removes a network with all that is in it."""
        here = ec2_backends[_ACCOUNT][region]
        for zone in here.subnets.values():
            for each in [each for each in zone.values() if each.vpc_id == vpc]:
                del zone[each.id]
        for gateway in [each for each in here.internet_gateways.values() if each.vpc and each.vpc.id == vpc]:
            del here.internet_gateways[gateway.id]
        here.groups.pop(vpc, None)
        for table in [each for each in here.route_tables.values() if each.vpc_id == vpc]:
            del here.route_tables[table.id]
        del here.vpcs[vpc]

    def refusal(self, region: str, zone_id: str, card: Card) -> tuple[str, str] | None:
        """Why a machine cannot be started with this interface: EC2's code and message."""
        here = ec2_backends[_ACCOUNT][region]
        subnets = {each.id: each for zone in here.subnets.values() for each in zone.values()}
        subnet = subnets.get(card["SubnetId"])
        if subnet is None:
            return "InvalidSubnetID.NotFound", f"The subnet ID '{card['SubnetId']}' does not exist"
        if subnet._availability_zone.zone_id != zone_id:
            return "InvalidParameterValue", f"The subnet '{subnet.id}' is not in {zone_id}"
        for group in card["Groups"]:
            if group not in here.groups.get(subnet.vpc_id, {}):
                return "InvalidGroup.NotFound", f"The security group '{group}' does not exist"
        return None

    def zone_of(self, region: str, subnet_id: str) -> str:
        """The zone ID of a subnet; "" if there is none."""
        for zone in ec2_backends[_ACCOUNT][region].subnets.values():
            if subnet_id in zone:
                return str(zone[subnet_id]._availability_zone.zone_id)
        return ""

    def _held(self, form: Mapping[str, str], region: str) -> str:
        here, action, cards = ec2_backends[_ACCOUNT][region], form["Action"], list(self.cards(region))
        subnets = {each["SubnetId"] for each in cards}
        used = {
            "DeleteSubnet": subnets,
            "DeleteSecurityGroup": {group for each in cards for group in each["Groups"]},
        }.get(action, set())
        networks = {each.vpc_id for zone in here.subnets.values() for each in zone.values() if each.id in subnets}
        if action == "DetachInternetGateway":
            used = networks
        if action == "DeleteVpc":
            own = [each for each in here.groups.get(form["VpcId"], {}).values() if each.name != "default"]
            attached = {each.vpc.id for each in here.internet_gateways.values() if each.vpc}
            used = networks | attached | ({form["VpcId"]} if own else set())
        asked = form.get("SubnetId") or form.get("GroupId") or form.get("VpcId") or ""
        return asked if asked in used else ""
