"""What the foundation's guard refuses, and what it never does: what lives, what is nobody's, and its own way back."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from botocore.exceptions import PaginationError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.common.answer import answer
from cdk_hyperpod._lambda.hyperpod.foundation_guard import handler
from cdk_hyperpod._lambda.hyperpod.foundation_guard.decision import Live, Subnet, differences
from cdk_hyperpod._lambda.hyperpod.foundation_guard.guard import GuardError
from cdk_hyperpod._lambda.hyperpod.foundation_guard.look import look
from cdk_hyperpod._lambda.hyperpod.foundation_guard.settings import ImmutableSettings, read, write
from helpers.findings import codes
from helpers.foundation_guard import OURS, STACK, THEIRS, FakeAccount, error, event, immutable_settings

EKS = {"Eks": {"ClusterArn": "arn:aws:eks:us-west-2:111122223333:cluster/train"}}
HEAD = "Changing the foundation of train was refused, and no stack was changed. "


def refusal(account: FakeAccount, wanted: ImmutableSettings) -> str:
    with pytest.raises(GuardError) as caught:
        account.guard().check(event(wanted))
    return str(caught.value)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("account", "wanted", "expected"),
    [
        pytest.param(
            FakeAccount(),
            immutable_settings(zone="us-west-2a", cidr="10.0.0.0/19"),
            ("zone-immutable", "network.availability_zones", "us-west-2c"),
            id="another zone",
        ),
        pytest.param(
            FakeAccount(),
            immutable_settings(zone="usw2-az1", cidr="10.0.0.0/19"),
            ("zone-immutable", "network.availability_zones", "usw2-az3"),
            id="another zone by its id",
        ),
        pytest.param(
            FakeAccount(),
            immutable_settings(cidr="10.1.64.0/19"),
            ("subnet-range-immutable", "network", "10.0.64.0/19"),
            id="another range",
        ),
        pytest.param(
            FakeAccount(),
            immutable_settings(zone=None, cidr=None, subnet_id=THEIRS),
            ("subnet-immutable", "network.vpc_id", OURS),
            id="an existing VPC instead of the made one",
        ),
        pytest.param(
            FakeAccount(cluster_subnet=THEIRS, efa=None),
            immutable_settings(zone=None, cidr=None, subnet_id="subnet-00000000000000003"),
            ("subnet-immutable", "network.subnets", THEIRS),
            id="another existing subnet",
        ),
        pytest.param(
            FakeAccount(cluster_subnet=THEIRS, efa=None),
            immutable_settings(),
            ("vpc-immutable", "network.vpc_id", THEIRS),
            id="a made VPC instead of the existing one",
        ),
        pytest.param(
            FakeAccount(orchestrator=EKS),
            immutable_settings(),
            ("orchestrator-immutable", "orchestrator", "eks"),
            id="another orchestrator",
        ),
        pytest.param(
            FakeAccount(),
            immutable_settings(efa=True),
            ("file-system-efa-immutable", "storage.efa", "false"),
            id="EFA of a file system",
        ),
        pytest.param(
            FakeAccount(orchestrator=None),
            immutable_settings(zone="us-west-2a", cidr="10.0.0.0/19"),
            ("zone-immutable", "network.availability_zones", "us-west-2c"),
            id="another zone under a file system alone",
        ),
    ],
)
def test_an_immutable_setting_that_changes_is_refused(
    account: FakeAccount, wanted: ImmutableSettings, expected: tuple[str, str, str]
) -> None:
    code, path, found = expected
    reason = refusal(account, wanted)
    assert reason.startswith(f"{HEAD}{path}: ")
    assert codes(reason) == [code]
    assert found in reason
    assert reason.count("\n") == 0


def test_all_changes_are_refused_at_once() -> None:
    reason = refusal(FakeAccount(orchestrator=EKS), immutable_settings(zone="us-west-2a", efa=True))
    assert codes(reason) == ["orchestrator-immutable", "zone-immutable", "file-system-efa-immutable"]


# -- what is let through ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("account", "wanted"),
    [
        pytest.param(FakeAccount(), immutable_settings(), id="what lives"),
        pytest.param(FakeAccount(), immutable_settings(zone="usw2-az3"), id="what lives, its zone by id"),
        pytest.param(
            FakeAccount(), immutable_settings(zone=None), id="the account's first zone, which nobody knows here"
        ),
        pytest.param(
            FakeAccount(cluster_subnet=THEIRS),
            immutable_settings(zone=None, cidr=None, subnet_id=THEIRS),
            id="what exists",
        ),
        pytest.param(
            FakeAccount(orchestrator=EKS, efa=True),
            immutable_settings(orchestrator="eks", efa=True),
            id="under EKS, with EFA",
        ),
        pytest.param(
            FakeAccount(orchestrator=None, efa=None),
            immutable_settings(zone="us-west-2a", efa=True),
            id="nothing lives",
        ),
        pytest.param(FakeAccount(), immutable_settings(efa=None), id="the file system goes, its cluster stays"),
        pytest.param(
            FakeAccount(orchestrator=None),
            immutable_settings(zone="us-west-2a", efa=None),
            id="the file system goes, with no cluster on it",
        ),
        pytest.param(FakeAccount(efa=None), immutable_settings(efa=True), id="a file system comes"),
        pytest.param(
            FakeAccount(orchestrator=None, system_status="DELETING"),
            immutable_settings(zone="us-west-2a", efa=True),
            id="it is being deleted",
        ),
        pytest.param(
            FakeAccount(orchestrator=None, resource_status="DELETE_SKIPPED"),
            immutable_settings(efa=True),
            id="it was kept by a deletion",
        ),
        pytest.param(
            FakeAccount(tags={}, efa=None),
            immutable_settings(zone="us-west-2a"),
            id="a cluster that nobody's stack made",
        ),
        pytest.param(
            FakeAccount(tags={"cdk-hyperpod:stack-id": "arn:…:stack/other/0a"}, efa=None),
            immutable_settings(zone="us-west-2a"),
            id="another stack's cluster",
        ),
        pytest.param(
            FakeAccount(errors={"describe_file_systems": error("FileSystemNotFound")}),
            immutable_settings(efa=True),
            id="gone by hand",
        ),
        pytest.param(
            FakeAccount(errors={"describe_subnets": error("InvalidSubnetID.NotFound")}),
            immutable_settings(zone="us-west-2a"),
            id="no subnet",
        ),
        pytest.param(
            FakeAccount(orchestrator=None, errors={"list_stack_resources": error("ValidationError", "does not exist")}),
            immutable_settings(efa=True),
            id="no stack, as for `plan` before the first deployment",
        ),
    ],
)
@pytest.mark.parametrize("request_type", ["Create", "Update"])
def test_settings_that_are_unchanged_or_not_deployed_yet_are_accepted(
    account: FakeAccount, wanted: ImmutableSettings, request_type: str
) -> None:
    account.guard().check(event(wanted, request_type))


def test_a_deletion_is_let_through_and_asks_nothing() -> None:
    account = FakeAccount()
    account.guard().check(event(immutable_settings(zone="us-west-2a"), "Delete"))
    assert account.calls == []


@pytest.mark.parametrize("status", ["UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_FAILED", "ROLLBACK_IN_PROGRESS"])
def test_a_rollback_is_let_through(status: str) -> None:
    """Say, back to the old zone, when nothing lived and the new file system is there already: a refusal helps nobody."""
    FakeAccount(orchestrator=None, status=status).guard().check(event(immutable_settings(zone="us-west-2a")))
    FakeAccount(status=status, errors={"describe_cluster": error("AccessDenied")}).guard().check(
        event(immutable_settings())
    )


@pytest.mark.parametrize("operation", ["list_stack_resources", "describe_cluster", "describe_file_systems"])
@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDenied"])
def test_a_rollback_is_let_through_whatever_cannot_be_read(operation: str, code: str) -> None:
    """At once: what is throttled for minutes must leave it the time to read its own stack's status."""
    account = FakeAccount(status="UPDATE_ROLLBACK_IN_PROGRESS", errors={operation: error(code)})
    began = account.now
    account.guard().check(event(immutable_settings()))
    assert (account.calls, account.now) == (["describe_stacks"], began)


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDenied"])
def test_a_rollback_that_cannot_be_recognized_at_first_is_looked_up_again(code: str) -> None:
    """Nothing can be read until the look has used up its own patience, and a few seconds more."""
    operations = ("describe_stacks", "describe_cluster")
    account = FakeAccount(status="UPDATE_ROLLBACK_IN_PROGRESS", errors={name: error(code) for name in operations})
    looked_for = 180 if code == "ThrottlingException" else 120
    account.until = account.now + timedelta(seconds=30 + looked_for + 10)
    account.guard().check(event(immutable_settings(zone="us-west-2a")))


TEXTS = st.sampled_from([None, "us-west-2a", "usw2-az1", "10.0.0.0/19", OURS])
SUBNETS = st.builds(
    Subnet,
    id=st.sampled_from([OURS, THEIRS]),
    zone=st.sampled_from(["us-west-2a", "us-west-2c"]),
    zone_id=st.sampled_from(["usw2-az1", "usw2-az3"]),
    cidr=st.sampled_from(["10.0.0.0/19", "10.0.64.0/19"]),
    vpc=st.just("vpc-1"),
    made_here=st.booleans(),
)


@given(
    subnet=SUBNETS,
    orchestrator=st.sampled_from(["slurm", "eks"]),
    efa=st.sampled_from([None, True, False]),
    by_id=st.booleans(),
    has_cluster=st.booleans(),
)
def test_settings_equal_to_the_live_ones_are_never_refused(
    subnet: Subnet, orchestrator: Any, efa: bool | None, by_id: bool, has_cluster: bool
) -> None:
    """So that the way back of a refused deployment passes, whatever stands."""
    live = Live(
        orchestrator=orchestrator if has_cluster else None,
        cluster_subnet=subnet if has_cluster else None,
        efa=efa,
        file_system_subnet=None if efa is None else subnet,
    )
    made = {"zone": subnet.zone_id if by_id else subnet.zone, "cidr": subnet.cidr}
    same = immutable_settings(orchestrator=orchestrator, efa=efa, **(made if subnet.made_here else _existing(subnet)))
    assert not [*differences(same, live)]


def _existing(subnet: Subnet) -> dict[str, Any]:
    return {"subnet_id": subnet.id, "zone": None, "cidr": None}


@given(zone=TEXTS, cidr=TEXTS, subnet_id=TEXTS, efa=st.sampled_from([None, True, False]))
def test_properties_come_back_as_they_went(
    zone: str | None, cidr: str | None, subnet_id: str | None, efa: bool | None
) -> None:
    wanted = immutable_settings(zone=zone, cidr=cidr, subnet_id=subnet_id, efa=efa)
    assert read({"ServiceToken": "x", **write(wanted)}) == wanted


# -- what cannot be read ----------------------------------------------------------------------------------------------

OPERATIONS = ["list_stack_resources", "describe_cluster", "list_tags", "describe_subnets", "describe_file_systems"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("code", ["AccessDenied", "ThrottlingException", "RequestLimitExceeded"])
def test_temporary_errors_are_retried(operation: str, code: str) -> None:
    """The function's own rights are seconds old when it is called first, and IAM is eventually consistent."""
    account = FakeAccount(errors={operation: error(code)})
    account.until = account.now + timedelta(seconds=100)
    account.guard().check(event(immutable_settings()))
    assert account.said[0] == f"cannot look yet: {code}: no"
    assert account.until <= account.now < account.until + timedelta(seconds=16)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_lasting_read_error_is_reported_with_the_missing_permission(operation: str) -> None:
    refused = error("AccessDenied", "User x is not authorized to perform: y")
    account = FakeAccount(errors={operation: refused})
    began = account.now
    said = refusal(account, immutable_settings())
    assert codes(said) == ["foundation-unreadable"]
    assert "AccessDenied: User x is not authorized to perform: y." in said
    assert (account.now - began).total_seconds() <= 180, "the function has five minutes"


def test_lasting_read_errors_are_reported_within_the_five_minutes_of_the_function() -> None:
    throttled = error("ThrottlingException")
    account = FakeAccount(errors=dict.fromkeys(("describe_stacks", *OPERATIONS), throttled))
    began = account.now
    assert refusal(account, immutable_settings()).startswith("The guard could not read")
    assert (account.now - began).total_seconds() <= 240


def test_a_status_that_stays_unreadable_makes_no_rollback() -> None:
    account = FakeAccount(errors={"describe_stacks": error("ThrottlingException")})
    assert refusal(account, immutable_settings(zone="us-west-2a")).startswith(HEAD)


def test_pages_whose_token_comes_again_end_with_an_error() -> None:
    class Client:
        asked = 0

        def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
            raise NotImplementedError

        def list_stack_resources(self, *, StackName: str, NextToken: str = "") -> dict[str, Any]:
            self.asked += 1
            assert self.asked < 10, "for ever"
            return {"StackResourceSummaries": [], "NextToken": "x"}

    def clients(service: str) -> Client:
        assert service == "cloudformation"
        return Client()

    with pytest.raises(PaginationError, match="so StackResourceSummaries cannot be read to the end"):
        look(immutable_settings(), STACK, clients)


# -- the answer -------------------------------------------------------------------------------------------------------


def test_the_guard_answers_cloudformation_with_success_or_failure(capsys: pytest.CaptureFixture[str]) -> None:
    identity = {"StackId": event(immutable_settings())["StackId"], "RequestId": "request", "LogicalResourceId": "Guard"}
    fine = handler.decide(event(immutable_settings(), "Create"), FakeAccount().guard())
    assert fine == {**identity, "PhysicalResourceId": handler.PHYSICAL_ID, "Status": "SUCCESS"}
    known = {**event(immutable_settings(zone="us-west-2a")), "PhysicalResourceId": "as it was"}
    refused = handler.decide(known, FakeAccount().guard())
    reason = refused.pop("Reason")
    assert refused == {**identity, "PhysicalResourceId": "as it was", "Status": "FAILED"}
    assert reason.startswith(HEAD)
    assert "secret.example.com" not in capsys.readouterr().out


def test_the_answer_is_put_where_the_event_says() -> None:
    got: list[tuple[str, str, Any]] = []

    class Bucket(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Bucket)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    answer({"ResponseURL": f"http://127.0.0.1:{server.server_port}/key?signed"}, {"Status": "SUCCESS"})
    thread.join()
    server.server_close()
    assert got == [("/key?signed", "", {"Status": "SUCCESS"})], "the address is signed for no content type"
