"""Which node this is, whether it is of its type, and which steps it runs: by pure functions, never guessed."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod._common.assets import pack_lifecycle
from helpers.lifecycle.programs import FILES, pythons
from lifecycle import provision
from lifecycle.provision import Cluster, Instance, Mount, Node, ProvisionError, Step

CLUSTER_JSON: dict[str, Any] = {"cluster_name": "llm-train", "mounts": [{"path": "/fsx", "type": "lustre"}]}
CLUSTER = Cluster("llm-train", (Mount("/fsx", "lustre"),))
CONTROLLER = Instance(
    "controller", "i-0aaaaaaaaaaaaaaa1", frozenset({"10.1.0.10", "169.254.3.10"}), "10.1.0.10", "ml.m5.4xlarge"
)
P5_1 = Instance("p5", "p5-1", frozenset({"10.1.0.21", "172.16.0.1"}), "10.1.0.21", "ml.p5.48xlarge")
P5_2 = Instance("p5", "p5-2", frozenset({"10.1.0.22", "172.16.0.2"}), "10.1.0.22", "ml.p5.48xlarge")
TRN1_1 = Instance("trn1", "trn1-1", frozenset({"10.1.0.31"}), "10.1.0.31", "ml.trn1.32xlarge")
RESOURCE_CONFIG: dict[str, Any] = {
    "ClusterConfig": {"ClusterName": "llm-train", "ClusterArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/abc"},
    "ClusterType": "Slurm",
    "SlurmConfig": {"PrimaryControllerIp": "10.1.0.10"},
    "InstanceGroups": [
        {
            "Name": "controller",
            "InstanceType": "ml.m5.4xlarge",
            "Instances": [
                {
                    "InstanceName": "controller-1",
                    "AgentIpAddress": "169.254.3.10",
                    "CustomerIpAddress": "10.1.0.10",
                    "InstanceId": "i-0aaaaaaaaaaaaaaa1",
                }
            ],
        },
        {
            "Name": "p5",
            "InstanceType": "ml.p5.48xlarge",
            "Instances": [
                {"InstanceName": "p5-1", "AgentIpAddress": "172.16.0.1", "CustomerIpAddress": "10.1.0.21"},
                {"InstanceName": "p5-2", "AgentIpAddress": "172.16.0.2", "CustomerIpAddress": "10.1.0.22"},
            ],
        },
        {
            "Name": "trn1",
            "InstanceType": "ml.trn1.32xlarge",
            "Instances": [{"InstanceName": "trn1-1", "AgentIpAddress": None, "CustomerIpAddress": "10.1.0.31"}],
        },
        {"Name": "empty", "InstanceType": "ml.trn1.32xlarge", "Instances": None},
    ],
}


@pytest.mark.parametrize(
    ("addresses", "instance"),
    [
        pytest.param({"10.1.0.10"}, CONTROLLER, id="customer address"),
        pytest.param({"10.1.0.22"}, P5_2, id="no instance id"),
        pytest.param({"10.1.0.21", "172.16.0.1", "10.1.9.9"}, P5_1, id="both, and one more card"),
        pytest.param({"10.1.0.31"}, TRN1_1, id="HyperPod knows no agent address"),
    ],
)
def test_a_node_finds_itself_by_any_of_its_addresses(addresses: set[str], instance: Instance) -> None:
    assert provision.find_self(RESOURCE_CONFIG, frozenset(addresses)) == instance


def test_the_agent_address_identifies_a_node_only_if_it_has_no_customer_address() -> None:
    """10.1.0.77 may be a new node's own address, which HyperPod has not listed yet."""
    instance = {"InstanceName": "p5-1", "AgentIpAddress": "10.1.0.77", "CustomerIpAddress": "10.1.0.21"}
    new = frozenset({"10.1.0.77"})
    with pytest.raises(ProvisionError, match="no instance in"):
        provision.find_self({"InstanceGroups": [{"Name": "p5", "Instances": [instance]}]}, new)
    del instance["CustomerIpAddress"]
    assert provision.find_self({"InstanceGroups": [{"Name": "p5", "Instances": [instance]}]}, new).name == "p5-1"


@pytest.mark.parametrize(
    ("resource_config", "addresses", "message"),
    [
        pytest.param(
            RESOURCE_CONFIG,
            {"10.9.9.9", "10.9.9.8"},
            r"^no instance in resource_config\.json has an address of this node \(10\.9\.9\.8, 10\.9\.9\.9\); compare",
            id="unknown: never taken for a compute node",
        ),
        pytest.param(RESOURCE_CONFIG, set(), r"an address of this node \(none\)", id="no address"),
        pytest.param(
            RESOURCE_CONFIG,
            {"10.1.0.10", "10.1.0.21"},
            r"^more than one instance .* \(10\.1\.0\.10, 10\.1\.0\.21\): i-0aaaaaaaaaaaaaaa1 in controller, p5-1 in p5$",
            id="ambiguous",
        ),
        pytest.param([], {"10.1.0.10"}, "^resource_config.json does not have HyperPod's form", id="a list"),
        pytest.param({}, {"10.1.0.10"}, "does not have HyperPod's form: KeyError..InstanceGroups", id="no groups"),
        pytest.param({"InstanceGroups": ["p5"]}, {"10.1.0.10"}, "HyperPod's form: AttributeError", id="a name only"),
        pytest.param(
            {"InstanceGroups": [{"Instances": [{"CustomerIpAddress": "10.1.0.10"}]}]},
            {"10.1.0.10"},
            "HyperPod's form: KeyError",
            id="a group without a name",
        ),
    ],
)
def test_a_node_that_cannot_identify_itself_fails_with_the_reason(
    resource_config: Any, addresses: set[str], message: str
) -> None:
    with pytest.raises(ProvisionError, match=message):
        provision.find_self(resource_config, frozenset(addresses))


def with_slurm(config: Any) -> dict[str, Any]:
    return {**RESOURCE_CONFIG, "SlurmConfig": config}


@pytest.mark.parametrize(
    ("node_type", "instance", "address", "resource_config"),
    [
        pytest.param("controller", CONTROLLER, "10.1.0.10", RESOURCE_CONFIG, id="the controller"),
        pytest.param("compute", P5_1, "10.1.0.21", RESOURCE_CONFIG, id="compute"),
        pytest.param("login", P5_1, "10.1.0.21", RESOURCE_CONFIG, id="login"),
        pytest.param(
            "controller",
            CONTROLLER,
            "10.1.0.77",
            with_slurm({"PrimaryControllerIp": "10.1.0.77"}),
            id="the controller, by an address that only the node knows",
        ),
        pytest.param(
            "controller",
            CONTROLLER,
            "10.1.0.10",
            with_slurm({"PrimaryControllerIp": "169.254.3.10"}),
            id="the controller, by an address that only HyperPod knows",
        ),
        pytest.param(
            "controller",
            P5_1,
            "10.1.0.21",
            with_slurm({"PrimaryControllerIp": "10.1.0.10", "SecondaryControllerIps": ["10.1.0.11", "10.1.0.21"]}),
            id="one of several controllers",
        ),
        pytest.param(
            "compute",
            P5_1,
            "10.1.0.21",
            with_slurm({"PrimaryControllerIp": "10.1.0.10", "SecondaryControllerIps": None}),
            id="no secondary controllers",
        ),
    ],
)
def test_a_node_is_what_hyperpod_says(
    node_type: str, instance: Instance, address: str, resource_config: dict[str, Any]
) -> None:
    provision.check_node_type(node_type, instance, resource_config, frozenset({address}))


@pytest.mark.parametrize("node_type", provision.NODE_TYPES)
@pytest.mark.parametrize(
    "resource_config",
    [
        pytest.param({}, id="not Slurm"),
        pytest.param({"SlurmConfig": None}, id="null"),
        pytest.param({"SlurmConfig": {}}, id="no address"),
        pytest.param({"SlurmConfig": {"PrimaryControllerIp": None}}, id="address null"),
        pytest.param({"SlurmConfig": {"PrimaryControllerIp": ""}}, id="address empty"),
    ],
)
def test_hyperpod_need_not_say_where_the_controller_is(node_type: str, resource_config: dict[str, Any]) -> None:
    provision.check_node_type(node_type, P5_1, resource_config, frozenset({"10.1.0.21"}))


@pytest.mark.parametrize(
    ("node_type", "instance", "resource_config", "message"),
    [
        pytest.param(
            "controller",
            P5_1,
            RESOURCE_CONFIG,
            r"^LifeCycleConfig of the instance group 'p5' says controller, but HyperPod says the controller is 10\.1\.0\.10 "
            r"\(SlurmConfig in resource_config\.json\), and this node has the addresses 10\.1\.0\.21, 10\.1\.9\.9, "
            r"172\.16\.0\.1; correct LifeCycleConfig of the group$",
            id="a second controller",
        ),
        pytest.param("compute", CONTROLLER, RESOURCE_CONFIG, "'controller' says compute, but", id="compute"),
        pytest.param("login", CONTROLLER, RESOURCE_CONFIG, "'controller' says login, but", id="login"),
        pytest.param(
            "compute",
            CONTROLLER,
            with_slurm({"PrimaryControllerIp": "169.254.3.10"}),
            r"says compute, but HyperPod says the controller is 169\.254\.3\.10 ",
            id="compute, by an address that only HyperPod knows",
        ),
        pytest.param(
            "compute",
            CONTROLLER,
            with_slurm({"PrimaryControllerIp": "10.1.9.9"}),
            r"says compute, but HyperPod says the controller is 10\.1\.9\.9 ",
            id="compute, by an address that only the node knows",
        ),
        pytest.param(
            "controller",
            P5_1,
            with_slurm({"PrimaryControllerIp": "10.1.0.10", "SecondaryControllerIps": ["10.1.0.11"]}),
            r"says controller, but HyperPod says the controller is 10\.1\.0\.10, 10\.1\.0\.11 ",
            id="none of several controllers",
        ),
        pytest.param(
            "compute",
            P5_1,
            with_slurm({"PrimaryControllerIp": "10.1.0.10", "SecondaryControllerIps": ["10.1.0.21"]}),
            "'p5' says compute, but",
            id="compute, one of several controllers",
        ),
        pytest.param(
            "compute", P5_1, with_slurm("text"), "^resource_config.json does not have HyperPod's form", id="text"
        ),
        pytest.param(
            "compute",
            P5_1,
            with_slurm({"PrimaryControllerIp": ["10.1.0.10"]}),
            "HyperPod's form: TypeError",
            id="a list",
        ),
        pytest.param(
            "compute",
            P5_1,
            with_slurm({"PrimaryControllerIp": "10.1.0.10", "SecondaryControllerIps": 1}),
            "HyperPod's form: TypeError",
            id="a number",
        ),
    ],
)
def test_a_node_that_is_not_what_hyperpod_says_is_refused(
    node_type: str, instance: Instance, resource_config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProvisionError, match=message):
        # One address the node and HyperPod both know, and one that only the node knows.
        provision.check_node_type(
            node_type, instance, resource_config, frozenset({min(instance.addresses), "10.1.9.9"})
        )


@pytest.mark.parametrize(
    "resource_config",
    [RESOURCE_CONFIG, {}, {"ClusterConfig": None}, {"ClusterConfig": "text"}, {"ClusterConfig": {"ClusterArn": "arn"}}],
)
def test_the_scripts_of_the_cluster_are_run_and_those_of_one_that_is_not_named(resource_config: dict[str, Any]) -> None:
    provision.check_cluster(resource_config, CLUSTER)


def test_the_scripts_of_another_cluster_are_not_run() -> None:
    other = {"ClusterConfig": {"ClusterName": "other"}}
    with pytest.raises(ProvisionError, match=r"'llm-train', and this node is in 'other'; correct SourceS3Uri"):
        provision.check_cluster(other, CLUSTER)


def test_the_cluster_file_of_a_node_is_parsed() -> None:
    assert provision.parse_cluster(CLUSTER_JSON) == CLUSTER
    assert provision.parse_cluster({"cluster_name": "a"}) == Cluster("a", ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster_name": ""}, r'^cluster\.json: cluster_name: must be text, got ""$'),
        ({"cluster_name": None}, r"^cluster\.json: cluster_name: must be text, got null$"),
        ({"accounts": {}}, r"^cluster\.json: accounts: must be a list, got {}$"),
        ({"steps": ["mounts"]}, r"^cluster\.json: steps: must be an object"),
        ({"steps": {"mounts": "off"}}, r'^cluster\.json: steps\.mounts: must be true or false, got "off"$'),
        ({"mounts": "/fsx"}, r'^cluster\.json: mounts: must be a list, got "/fsx"$'),
        ({"mounts": ["/fsx"]}, r'^cluster\.json: mounts\[0\]: must be an object, got "/fsx"$'),
        ({"mounts": [{"path": "/fsx"}]}, r"mounts\[0\]\.type: must be text, got null$"),
        (
            {"mounts": [{"path": "fsx", "type": "lustre"}]},
            r"mounts\[0\]\.path: must be an absolute path like /fsx, got",
        ),
        (
            {"mounts": [{"path": "/f x", "type": "lustre"}]},
            r"mounts\[0\]\.path: must be an absolute path like /fsx, got",
        ),
        ({"mounts": [{"path": "/fsx", "type": "lu\tstre"}]}, r"mounts\[0\]\.type: must be a type like lustre, got"),
    ],
)
def test_a_wrong_cluster_file_is_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvisionError, match=message):
        provision.parse_cluster({**CLUSTER_JSON, **change})


def test_a_cluster_file_that_is_no_object_is_an_error() -> None:
    with pytest.raises(ProvisionError, match=r"^cluster\.json: its content: must be an object, got \[\]$"):
        provision.parse_cluster([])


def overlapping() -> dict[str, Any]:
    """The agents' network overlaps the cluster's: the agents of P5_1 and of the controller have others' addresses."""
    agents = {"10.1.0.21": "10.1.0.22", "10.1.0.10": "10.1.0.21", "10.1.0.22": "10.1.0.10"}
    groups = [
        {
            **group,
            "Instances": [
                {**instance, "AgentIpAddress": agents.get(instance["CustomerIpAddress"])}
                for instance in group["Instances"] or ()
            ],
        }
        for group in RESOURCE_CONFIG["InstanceGroups"]
    ]
    return {**RESOURCE_CONFIG, "InstanceGroups": groups}


@pytest.mark.parametrize(
    ("address", "name", "node_type"),
    [
        ("10.1.0.10", "i-0aaaaaaaaaaaaaaa1", "controller"),
        ("10.1.0.21", "p5-1", "compute"),
        ("10.1.0.22", "p5-2", "compute"),
    ],
)
def test_the_agents_network_may_overlap_the_cluster_s_own(address: str, name: str, node_type: str) -> None:
    own = frozenset({address})
    found = provision.find_self(overlapping(), own)
    assert found.name == name
    # P5_2's agent has the controller's address, and P5_2 is no controller for that.
    provision.check_node_type(node_type, found, overlapping(), own)


def test_the_steps_of_a_node_follow_from_its_type_and_mounts() -> None:
    two = Cluster("a", (Mount("/fsx", "lustre"), Mount("/home", "nfs4")))
    node = Node("compute", P5_1, ("10.1.0.10", "10.1.0.11"))
    clock = Step("clock", "15_clock.py")
    users = Step("users", "30_users.py", (CLUSTER.file,))
    assert provision.steps_for(CLUSTER, node)[1:5] == (
        Step("mounts", "10_verify_mounts.sh", ("/fsx", "lustre")),
        clock,
        users,
        Step("slurm", "20_slurm.py", ("compute", "10.1.0.10")),
    )
    assert provision.steps_for(two, node)[1].arguments == ("/fsx", "lustre", "/home", "nfs4")
    assert provision.steps_for(Cluster("a", ()), node)[1] == clock
    assert provision.steps_for(Cluster("a", ()), Node("login", P5_1))[3].arguments == ("login", "-")


def test_every_step_can_be_switched_off() -> None:
    for off in provision.STEPS:
        accounts = [{"name": "research"}]
        cluster = provision.parse_cluster(
            {**CLUSTER_JSON, "steps": {off: False}, "accounts": accounts, "lustre_efa": True}
        )
        for node_type in provision.NODE_TYPES:
            assert off not in {step.name for step in provision.steps_for(cluster, Node(node_type, P5_1))}


def test_every_step_runs_somewhere_and_is_known_by_its_name() -> None:
    cluster = dataclasses.replace(CLUSTER, has_accounts=True, drains=True, efa=True, keeps_state=True)
    by_type = {
        node_type: [step.name for step in provision.steps_for(cluster, Node(node_type, P5_1))]
        for node_type in provision.NODE_TYPES
    }
    first = ["metadata", "mounts", "efa", "clock", "users", "slurm", "metadata"]
    controller = ["slurm_conf", *first[:5], "keep_state", "slurm", "slurm_conf", *first[6:], "slurm_conf", "accounting"]
    last = ["upgrades", "system", "container_data", "checks"]
    assert by_type == {
        "controller": [*controller, "drain", "keep_state", *last],
        "login": [*first, "access", *last],
        "compute": [*first, "access", *last],
    }
    assert {name for names in by_type.values() for name in names} == set(provision.STEPS)


def test_no_job_starts_before_the_lines_and_refused_lines_are_tried_again_after_the_user_s_scripts() -> None:
    cluster = dataclasses.replace(CLUSTER, own_scripts=provision.OWN_SCRIPTS, region="us-west-2")
    steps = provision.steps_for(cluster, Node("controller", P5_1))
    assert steps[0].script == "02_closed.py", "before the user's scripts"
    assert (steps[-2].name, steps[-1].script, steps[-1].arguments[-1]) == ("scripts_after", provision.LINES, "refused")
    off = provision.steps_for(dataclasses.replace(cluster, off=frozenset({"slurm_conf"})), Node("controller", P5_1))
    assert not any(step.name == "slurm_conf" for step in off)
    compute = provision.steps_for(cluster, Node("compute", P5_1))
    assert not any(step.name == "slurm_conf" for step in compute)


@pytest.mark.parametrize("node_type", provision.NODE_TYPES)
def test_the_metadata_is_closed_before_anything_else_and_with_each_user(node_type: str) -> None:
    cluster = dataclasses.replace(CLUSTER, own_scripts=provision.OWN_SCRIPTS)
    steps = provision.steps_for(cluster, Node(node_type, P5_1))
    ours = [step for step in steps if step.script != provision.CLOSED]
    assert (ours[0].name, ours[0].arguments) == ("metadata", (cluster.file, node_type, "first"))
    alone = [step.name for step in provision._only_step("users", steps, node_type)]
    assert alone == ["metadata", "users", "metadata"]


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ({}, {"PrologFlags": ["Contain"], "PropagateResourceLimitsExcept": ["MEMLOCK", "NOFILE"]}),
        ({"off": frozenset({"access"})}, {"PropagateResourceLimitsExcept": ["MEMLOCK", "NOFILE"]}),
        ({"off": frozenset({"access", "system"})}, {}),
        ({"off": frozenset({"access", "system", "accounting"}), "has_accounts": True}, {}),
        (
            {"off": frozenset({"access", "system"}), "has_accounts": True},
            {"AccountingStorageEnforce": ["associations", "limits"]},
        ),
        (
            {"off": frozenset({"access", "system"}), "has_accounts": True, "limits_gpus": True},
            {"AccountingStorageEnforce": ["associations", "limits"], "AccountingStorageTRES": ["gres/gpu"]},
        ),
    ],
)
def test_slurm_conf_gets_what_the_steps_that_are_on_need(
    change: dict[str, Any], settings: dict[str, list[str]]
) -> None:
    assert provision.slurm_settings(dataclasses.replace(CLUSTER, **change)) == settings


def test_addresses_leave_out_what_every_machine_has() -> None:
    interfaces: list[dict[str, Any]] = [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}, {"local": "::1"}]},
        {"ifname": "eth0", "addr_info": [{"local": "10.1.0.21"}, {"local": "fe80::1"}]},
        {"ifname": "eth1", "addr_info": [{"local": "2001:DB8::1"}, {"broadcast": "10.1.0.255"}]},
        {"ifname": "efa0"},
    ]
    assert provision.addresses_in(interfaces) == {"10.1.0.21", "2001:db8::1"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_node_s_python_can_parse_the_programs(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 8))
    # New names in annotations are no harm as long as nothing evaluates them.
    future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    assert future or file.name == "__init__.py"
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    own = {path.stem for path in FILES} | {path.parent.name for path in FILES if path.name == "__init__.py"}
    newer = {"graphlib", "tomllib", "zoneinfo"}
    assert {module.split(".")[0] for module in modules} - own <= sys.stdlib_module_names - newer


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """What Python evaluates of a program: not its annotations, which the __future__ import keeps as text."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from evaluated(child)


def generics_in(program: str) -> list[str]:
    """Expressions such as list[str] and Mapping[str, int] that stand outside annotations: an error before Python 3.9."""
    tree = ast.parse(program)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "collections.abc"]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    names |= {"dict", "frozenset", "list", "set", "tuple", "type"}
    subscripts = [node for node in evaluated(tree) if isinstance(node, ast.Subscript)]
    return [
        ast.unparse(node)
        for node in subscripts
        if (isinstance(node.value, ast.Name) and node.value.id in names)
        or ast.unparse(node.value).startswith(("collections.", "subprocess."))
    ]


def test_the_check_finds_generics_that_a_program_evaluates() -> None:
    program = (
        "from collections.abc import Mapping\n"
        "Settings = Mapping[str, int]\n"
        "class Own(dict[str, int]): pass\n"
        "def f(a: list[str] = cast(tuple[int])) -> set[str]:\n    b: dict[str, int] = a[0]\n"
    )
    assert generics_in(program) == ["Mapping[str, int]", "dict[str, int]", "tuple[int]"]


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).name)
def test_the_node_s_python_can_load_the_programs(python: str, tmp_path: Path) -> None:
    code = """
import importlib, runpy, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    runpy.run_path(name) if name.endswith(".py") else importlib.import_module(name)
"""
    folder = pack_lifecycle(tmp_path / "packed")
    files = sorted(folder.rglob("*.py"))
    names = [
        ".".join(file.relative_to(folder).with_suffix("").parts)
        if file.with_name("__init__.py").exists()
        else str(file)
        for file in files
    ]
    assert "agent.s3" in names
    done = subprocess.run([python, "-Bc", code, str(folder), *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_program_evaluates_no_generics(file: Path) -> None:
    assert generics_in(file.read_text("utf-8")) == []
