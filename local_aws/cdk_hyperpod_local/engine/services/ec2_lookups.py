"""What EC2 answers when a program looks up zones, the types that they offer, or the default VPC.

Zones are those of AWS. Offers are invented: every zone offers every type.
"""

from __future__ import annotations

import re

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.seam import stores
from cdk_hyperpod_local.hyperpod.api_shapes import service_model

Json = stores.Json
_ZONES = {
    "ap-northeast-1": "abcd",
    "ap-northeast-2": "abcd",
    "ca-central-1": "abd",
    "us-east-1": "abcdef",
    "us-west-2": "abcd",
}
"""The zones of a region by their letters (Amazon EC2 User Guide, "Regions and Zones"). Absent: a, b and c."""
_ZONE_NAME = re.compile(r"[a-z]{2}(-[a-z]+)+-\d[a-z]")
_ZONE_ID = re.compile(r"[a-z]+\d-az\d+")
"""An availability zone, by its name or its id. Those of local zones have other forms."""
_SPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_VPC_FILTERS = {"isDefault": "is-default"}
"""Other names of filters that EC2 accepts, and the CDK CLI uses."""


def install() -> None:
    """Answer the look-ups, and refuse a subnet in a zone that the region does not have."""
    actions = stores.ec2_actions()
    actions["DescribeAvailabilityZones"] = _describe_zones
    actions["DescribeInstanceTypeOfferings"] = _offerings
    describe_vpcs, create_subnet = actions["DescribeVpcs"], actions["CreateSubnet"]
    actions["DescribeVpcs"] = lambda params: describe_vpcs(_with_known_filters(params))

    def created(params: Json) -> requests.Reply:
        reason = zone_problem(*(stores.ec2_parameter(params, f"AvailabilityZone{end}") for end in ("", "Id")))
        return stores.ec2_error("InvalidParameterValue", reason) if reason else create_subnet(params)

    actions["CreateSubnet"] = created
    stores.find_zones_by_id(zones)


def zones() -> tuple[str, ...]:
    """The names of the zones of the request's region."""
    region = seam.region()
    return tuple(f"{region}{letter}" for letter in _ZONES.get(region, "abc"))


def zone_problem(zone: str, zone_id: str) -> str | None:
    """EC2's message if the region does not have this availability zone. `zone_id`: instead of the name. Empty: not given.

    Local zones are accepted.
    """
    by_name = ("availabilityZone", zone, _ZONE_NAME, zones())
    by_id = ("availabilityZoneId", zone_id, _ZONE_ID, tuple(map(stores.zone_id, zones())))
    for parameter, given, form, known in (by_name, by_id):
        if form.fullmatch(given) and given not in known:
            return (
                f"Value ({given}) for parameter {parameter} is invalid. Subnets can currently only be created in the "
                f"following availability zones: {', '.join(known)}."
            )
    return None


def _describe_zones(params: Json) -> requests.Reply:
    region = seam.region()
    items = "".join(
        f"<item><zoneName>{zone}</zoneName><zoneId>{stores.zone_id(zone)}</zoneId><zoneState>available</zoneState>"
        f"<regionName>{region}</regionName><groupName>{region}-zg-1</groupName><networkBorderGroup>{region}</networkBorderGroup>"
        "<optInStatus>opt-in-not-required</optInStatus><zoneType>availability-zone</zoneType></item>"
        for zone in zones()
    )
    return _reply("DescribeAvailabilityZones", f"<availabilityZoneInfo>{items}</availabilityZoneInfo>")


def _offerings(params: Json) -> requests.Reply:
    """By zone, for the types of the filter instance-type."""
    wanted = {value for values in params.values() for value in values}
    items = "".join(
        f"<item><instanceType>{kind}</instanceType><locationType>availability-zone</locationType><location>{zone}</location></item>"
        for name in sorted(service_model().shape_for("ClusterInstanceType").enum)
        if (kind := name.removeprefix("ml.")) in wanted
        for zone in zones()
    )
    return _reply("DescribeInstanceTypeOfferings", f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>")


def _with_known_filters(params: Json) -> Json:
    def known(name: str, values: Json) -> Json:
        is_name = name.startswith("Filter.") and name.endswith(".Name")
        return [_VPC_FILTERS.get(value, value) for value in values] if is_name else values

    return {name: known(name, values) for name, values in params.items()}


def _reply(operation: str, body: str) -> requests.Reply:
    text = f'<{operation}Response xmlns="{_SPACE}">{body}</{operation}Response>'
    return 200, {"Content-Type": "text/xml"}, text.encode()
