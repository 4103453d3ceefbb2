"""The local AWS for a cluster of real Slurm: its HyperPod's nodes are the cluster's, and the controller reaches it.

    with running_engine(...) as aws, reached_from(cluster.controller, aws.place.port):
        stand_for(aws, cluster)

IAM stands in front of every request, so who asks has the rights of a role and no more.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Thread
from typing import Any

from cdk_hyperpod_local.session import LocalAws
from helpers.slurm.cluster import Cluster, Node
from helpers.slurm.hyperpod import CLUSTER_NAME


@contextmanager
def reached_from(node: Node, port: int) -> Iterator[None]:
    """The node reaches this port of this machine as it would its own."""
    listening = node.listen(port)
    accepting = Thread(target=_accept, args=(listening, port))
    accepting.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listening.close()


def _accept(listening: socket.socket, port: int) -> None:
    with suppress(OSError):  # it is shut down
        while True:
            inside, _ = listening.accept()
            Thread(target=_connect, args=(inside, port), daemon=True).start()


def _connect(inside: socket.socket, port: int) -> None:
    with inside, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as outside:
        there = Thread(target=_pass_on, args=(inside, outside), daemon=True)
        there.start()
        _pass_on(outside, inside)
        there.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while some := source.recv(65536):
            target.sendall(some)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def stand_for(aws: LocalAws, cluster: Cluster) -> Iterator[None]:
    """HyperPod's nodes have the addresses of the cluster's, and those the ids that HyperPod gave."""
    sagemaker = aws.client("sagemaker")
    listed = sagemaker.list_cluster_nodes(ClusterName=CLUSTER_NAME, MaxResults=100)["ClusterNodeSummaries"]
    left = {group: [] for group in {node["InstanceGroupName"] for node in listed}}  # type: dict[str, list[str]]
    for node in sorted(listed, key=lambda node: (node["LaunchTime"], node["InstanceId"])):
        left[node["InstanceGroupName"]].append(node["InstanceId"])
    before = [node.instance for node in cluster.nodes]
    for node in cluster.nodes:
        node.instance = replace(node.instance, known_as=left[node.instance.group].pop(0))
    assert not any(left.values()), f"HyperPod has more nodes: {left}"
    addresses = {node.instance.instance_id: {"address": node.instance.address} for node in cluster.nodes}
    aws.change_hyperpod(nodes=addresses)
    cluster.lay_resource_config([cluster.controller])
    try:
        yield
    finally:
        for node, instance in zip(cluster.nodes, before, strict=True):
            node.instance = instance
        cluster.lay_resource_config([cluster.controller])


def take_on(aws: LocalAws, role_arn: str) -> dict[str, str]:
    """The credentials of a role that only AWS itself takes on, such as a node's, as environment variables.

    Whoever is of the account may take it on from now on; what it may do stays as it is.
    """
    iam, name = aws.client("iam"), role_arn.rpartition("/")[2]
    trusted: Any = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
    ours = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": aws.account}}
    trusted = {**trusted, "Statement": [*trusted["Statement"], ours]}
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(trusted))
    given = aws.client("sts").assume_role(RoleArn=role_arn, RoleSessionName="node")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
        "AWS_SESSION_TOKEN": given["SessionToken"],
    }
