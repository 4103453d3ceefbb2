"""AWS::EC2::SecurityGroupIngress and AWS::EC2::SecurityGroupEgress: rules outside their security group's own
resource."""

from __future__ import annotations

from cdk_hyperpod_local.engine.resources.base import Created, Json, RefusedError, ResourceType
from cdk_hyperpod_local.engine.seam import stores

_SIDES = {"ingress": "IpPermissions", "egress": "IpPermissionsEgress"}
_PEERS = ("IpRanges", "Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs")


def _rule_type(side: str, name: str) -> ResourceType:
    def create(logical_id: str, properties: Json, stack_name: str) -> Created:
        group_id = properties.get("GroupId", "")
        group = _group(group_id)
        rules = group[_SIDES[side]]
        rule = stores.security_group_rule(properties)
        for peer in rule["UserIdGroupPairs"]:
            _group(peer.get("GroupId", ""))
        if any(_same(rule, other) for other in rules):
            raise RefusedError("the specified rule already exists", service="Ec2", code="AlreadyExists")
        if side == "egress":
            # A first egress rule replaces the default rule that allows all traffic.
            rules[:] = [other for other in rules if not _is_default_egress(other)]
        rule["SecurityGroupRuleId"] = stores.security_group_rule_id(group_id, side == "egress", rule)
        rules.append(rule)
        return rule["SecurityGroupRuleId"], {"Id": rule["SecurityGroupRuleId"]}

    def delete(physical_id: str, properties: Json) -> None:
        group = stores.ec2_store("security_groups").get(properties.get("GroupId", ""))
        if group:
            rules = group[_SIDES[side]]
            rules[:] = [rule for rule in rules if rule.get("SecurityGroupRuleId") != physical_id]

    def update(physical_id: str, old: Json, new: Json, stack_name: str, logical_id: str) -> Created:
        if {**old, "Description": ""} != {**new, "Description": ""}:
            return create(logical_id, new, stack_name)
        delete(physical_id, old)
        rule = {**stores.security_group_rule(new), "SecurityGroupRuleId": physical_id}
        _group(new["GroupId"])[_SIDES[side]].append(rule)
        return physical_id, {"Id": physical_id}

    return ResourceType(name=name, create=create, update=update, delete=delete)


def _group(group_id: str) -> Json:
    group = stores.ec2_store("security_groups").get(group_id)
    if group is None:
        raise RefusedError(f"The security group '{group_id}' does not exist", service="Ec2", code="NotFound")
    return group


def _same(one: Json, other: Json) -> bool:
    return bool(_bare(one) == _bare(other))


def _bare(rule: Json) -> Json:
    peers = {key: [{**peer, "Description": ""} for peer in rule.get(key, [])] for key in _PEERS}
    return (str(rule.get("IpProtocol")), rule.get("FromPort"), rule.get("ToPort"), peers)


def _is_default_egress(rule: Json) -> bool:
    return str(rule.get("IpProtocol")) == "-1" and rule.get("IpRanges") == [{"CidrIp": "0.0.0.0/0"}]


INGRESS = _rule_type("ingress", "AWS::EC2::SecurityGroupIngress")
EGRESS = _rule_type("egress", "AWS::EC2::SecurityGroupEgress")
