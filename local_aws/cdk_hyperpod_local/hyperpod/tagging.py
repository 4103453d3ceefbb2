"""ListTags, AddTags and DeleteTags on cluster ARNs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .context import Context
from .errors import invalid
from .paging import page
from .state import Cluster, Json

MOST_TAGS = 50
CLOUDFORMATION = "cloudformation.amazonaws.com"
"""The principal that may set tags beginning with aws:, which are reserved for AWS services."""


def checked_tags(wanted: Iterable[Json], existing: Mapping[str, str], principal: str) -> dict[str, str]:
    """The tags after `wanted` were added. Raises ValidationException for reserved keys and for more than 50 tags."""
    tags = dict(existing)
    for tag in wanted:
        if tag["Key"].lower().startswith("aws:") and principal != CLOUDFORMATION:
            raise invalid(f"Tag keys that begin with aws: are reserved for system use: {tag['Key']}")
        tags[tag["Key"]] = tag["Value"]
    if sum(not key.lower().startswith("aws:") for key in tags) > MOST_TAGS:
        raise invalid(f"A resource can have at most {MOST_TAGS} tags")
    return tags


def _tagged(context: Context, arn: str) -> Cluster:
    # The operations declare no error for a missing resource (botocore: ListTags), so it is ValidationException.
    for cluster in context.clusters():
        if cluster.arn == arn:
            return cluster
    raise invalid(f"The resource {arn} does not exist")


def list_tags(context: Context, request: Json) -> Json:
    """ListTags. A page has 50 tags or more (botocore: ListTagsMaxResults)."""
    cluster = _tagged(context, request["ResourceArn"])
    here, token = page(
        list(cluster.tags.items()),
        request,
        key=lambda tag: (tag[0], tag[0]),
        default_size=MOST_TAGS,
        descending=False,
    )
    return {"Tags": [{"Key": key, "Value": value} for key, value in here], "NextToken": token}


def add_tags(context: Context, request: Json) -> Json:
    """AddTags adds or overwrites tags."""
    cluster = _tagged(context, request["ResourceArn"])
    cluster.tags = checked_tags(request["Tags"], cluster.tags, context.principal)
    return {"Tags": [{"Key": key, "Value": value} for key, value in sorted(cluster.tags.items())]}


def delete_tags(context: Context, request: Json) -> Json:
    """DeleteTags ignores keys that do not exist."""
    cluster = _tagged(context, request["ResourceArn"])
    cluster.tags = {key: value for key, value in cluster.tags.items() if key not in request["TagKeys"]}
    return {}
