"""The Kubernetes APIs of the local AWS's EKS: real kubectl and Helm work with the recording one, and both keep their
objects."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from cdk_hyperpod.config.eks import AutoscalingConfig
from cdk_hyperpod.config.teams import PriorityClass, Team
from cdk_hyperpod.eks.manifests import karpenter_manifests
from cdk_hyperpod.eks.teams import ALL_AVAILABLE, EVERY_NAME, KUEUE_NAMESPACE
from cdk_hyperpod.kubernetes.teams import priority_class_manifests, team_manifests
from cdk_hyperpod_local import installation, kubectl
from cdk_hyperpod_local.engine.kubernetes import KubernetesApi, karpenter, real, recording, training_operator
from cdk_hyperpod_local.engine.kubernetes.control_plane import built
from cdk_hyperpod_local.engine.kubernetes.running import Apis, Start
from cdk_hyperpod_local.engine.kubernetes.tokens import Callers
from helpers.kubernetes import sdk
from helpers.synthesis import ROOT

Json = Any
Run = Callable[..., "subprocess.CompletedProcess[str]"]

JOB = ROOT / "examples" / "elastic_training" / "job.yaml"
CHART = ROOT / "tests" / "helpers" / "chart"
TEAM = Team(name="research", quota={"ml.p5.48xlarge": 2}, role_arns=("arn:aws:iam::111122223333:role/research",))
PEOPLE = {"of-the-team": ("someone", ["hyperpod-ns-research-team"])}


def who(cluster: str, token: str) -> tuple[str, list[str]] | None:
    return PEOPLE.get(token)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    shown, key = folder / "server.pem", folder / "server.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=x",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(shown), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return shown, key


@pytest.fixture
def start(certificate: tuple[Path, Path]) -> Start:
    shown, key = certificate
    return recording.start(installation.current().kubernetes_schemas, shown, shown, key, who)


@pytest.fixture
def api(start: Start, tmp_path: Path) -> Iterator[KubernetesApi]:
    apis = Apis(tmp_path / "apis", start)
    yield apis.create("one")
    apis.delete("one")


@pytest.fixture
def run(api: KubernetesApi, tmp_path: Path) -> Run:
    path = os.pathsep.join([*map(str, kubectl.programs()), os.environ["PATH"]])
    kubeconfig = str(tmp_path / "apis" / "one" / "kubeconfig")

    def run(*command: str, ok: bool = True, given: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": kubeconfig, "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(
            command, env=environment, input=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
        return done

    return run


def as_file(folder: Path, *manifests: Json) -> str:
    """As CDK's handler writes them."""
    file = folder / "manifests.json"
    file.write_text("".join(map(json.dumps, manifests)), "utf-8")
    return str(file)


def labelled(*manifests: Json) -> list[Json]:
    return [
        {**item, "metadata": {**item["metadata"], "labels": {**item["metadata"].get("labels", {}), "prune": "me"}}}
        for item in manifests
    ]


# -- kubectl and Helm --------------------------------------------------------------------------------------------------


def test_kubectl_creates_applies_prunes_and_deletes(run: Run, api: KubernetesApi, tmp_path: Path) -> None:
    team = labelled(*team_manifests(TEAM, task_governance=False))
    more = labelled({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more", "namespace": "research"}})
    run("kubectl", "create", "-f", as_file(tmp_path, *team, *more), "--save-config")
    assert api.request("GET", "/api/v1/namespaces/research/resourcequotas/team-quota")[0] == 200
    (quota,) = (item for item in team if item["metadata"]["name"] == "team-quota")
    quota["spec"]["hard"]["pods"] = "7"
    printed = run("kubectl", "apply", "-f", as_file(tmp_path, *team), "--prune", "-l", "prune=me").stdout
    assert "configmap/more pruned" in printed
    assert "resourcequota/team-quota configured" in printed and "limitrange/team-defaults unchanged" in printed
    kept = api.request("GET", "/api/v1/namespaces/research/resourcequotas/team-quota")[1]
    assert kept["spec"]["hard"] == quota["spec"]["hard"]
    run("kubectl", "delete", "-f", as_file(tmp_path, *team[1:]))
    run("kubectl", "delete", "-f", as_file(tmp_path, team[0]))
    assert api.request("GET", "/api/v1/namespaces/research")[0] == 404


def test_kubectl_prunes_neither_quotas_nor_priorities(run: Run, tmp_path: Path) -> None:
    """What docs/team-quotas.md describes for a team that gives up its quota."""
    objects = labelled(
        *team_manifests(TEAM, task_governance=False),
        *priority_class_manifests([PriorityClass(name="urgent", value=1000)]),
    )
    run("kubectl", "create", "-f", as_file(tmp_path, *objects), "--save-config")
    fewer = [item for item in objects if item["kind"] not in ("ResourceQuota", "LimitRange", "PriorityClass")]
    printed = run("kubectl", "apply", "-f", as_file(tmp_path, *fewer), "--prune", "-l", "prune=me").stdout
    assert "pruned" not in printed
    run("kubectl", "get", "quota/team-quota", "limits/team-defaults", "-n", "research")
    run("kubectl", "get", "pc/urgent")


def test_kubectl_waits_for_kueue_only_where_it_is(run: Run, api: KubernetesApi) -> None:
    """As CDK's function, which repeats the command until it succeeds and prints something."""
    read = ("kubectl", "get", "-n", KUEUE_NAMESPACE, "deployments", EVERY_NAME, f"-o=jsonpath='{{{ALL_AVAILABLE}}}'")
    assert run(*read).stdout == "'List'"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KUEUE_NAMESPACE}}
    assert api.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    deployments = f"/apis/apps/v1/namespaces/{KUEUE_NAMESPACE}/deployments"
    labels = {"app": "kueue"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "kueue"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kueue"}, "spec": spec}
    status, starting = api.request("POST", deployments, {**made, "status": {"replicas": 1, "unavailableReplicas": 1}})
    assert status == 201
    assert "is not array" in run(*read, ok=False).stderr
    running = {**starting, "status": {"replicas": 1, "availableReplicas": 1}}
    assert api.request("PUT", f"{deployments}/kueue/status", running)[0] == 200
    assert run(*read).stdout == "'List'"


def test_kubectl_applies_an_elastic_job(run: Run, api: KubernetesApi, tmp_path: Path) -> None:
    training_operator.install(api)
    job = yaml.safe_load(JOB.read_text("utf-8"))
    run("kubectl", "create", "namespace", job["metadata"]["namespace"])
    assert "created" in run("kubectl", "apply", "-f", str(JOB)).stdout
    assert "unchanged" in run("kubectl", "apply", "-f", str(JOB)).stdout
    job["spec"]["elasticPolicy"]["minReplica"] = 3
    assert "minReplica" in run("kubectl", "apply", "-f", as_file(tmp_path, job), ok=False).stderr


def test_a_job_has_the_fields_that_the_sdk_knows() -> None:
    model = sdk.job_model().model_json_schema(by_alias=False)
    assert_same_fields(training_operator.SPEC, model, model["$defs"])


def assert_same_fields(schema: Json, model: Json, definitions: Json) -> None:
    """Down to the last level of the schema. Fields that the model leaves out may be null there."""
    (model,) = [item for item in model.get("anyOf", [model]) if item.get("type") != "null"]
    model = definitions[model["$ref"].rpartition("/")[2]] if "$ref" in model else model
    assert schema["type"] == model["type"]
    if schema["type"] == "array":
        assert_same_fields(schema["items"], model["items"], definitions)
    elif "properties" in schema:
        assert schema["properties"].keys() == model["properties"].keys()
        assert set(schema.get("required", [])) == set(model.get("required", []))
        for name, field in schema["properties"].items():
            assert_same_fields(field, model["properties"][name], definitions)


def test_apply_merges_lists_by_their_keys(run: Run, api: KubernetesApi, tmp_path: Path) -> None:
    containers = [
        {"name": "one", "image": "first", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"name": "two", "image": "other"},
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "default"}}
    run("kubectl", "apply", "-f", as_file(tmp_path, {**pod, "spec": {"containers": containers}}))
    # Another manager's field, which an apply without it does not change.
    added = {"metadata": {"annotations": {"from": "elsewhere"}}}
    assert api.request("PATCH", "/api/v1/namespaces/default/pods/pod", added)[0] == 200
    containers[0] = {"name": "one", "image": "second", "env": [{"name": "B", "value": "3"}]}
    run("kubectl", "apply", "-f", as_file(tmp_path, {**pod, "spec": {"containers": containers}}))
    found = api.request("GET", "/api/v1/namespaces/default/pods/pod")[1]
    assert found["spec"]["containers"] == containers
    assert found["metadata"]["annotations"]["from"] == "elsewhere"


def test_helm_installs_upgrades_and_uninstalls(run: Run, api: KubernetesApi) -> None:
    daemon_sets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    release = ["helm", "upgrade", "--install", "dependencies", str(CHART), "--namespace", "kube-system"]
    release += ["--set", "health-monitoring-agent.region=us-west-2"]
    run(*release)
    assert api.request("GET", f"{daemon_sets}/neuron-device-plugin")[0] == 200
    run(*release, "--set", "neuron-device-plugin.devicePlugin.enabled=false")
    assert api.request("GET", f"{daemon_sets}/neuron-device-plugin")[0] == 404
    assert api.request("GET", f"{daemon_sets}/nvidia-device-plugin")[0] == 200
    assert '"revision":"2"' in run("helm", "list", "-n", "kube-system", "-o", "json").stdout
    run("helm", "uninstall", "dependencies", "-n", "kube-system")
    assert api.request("GET", daemon_sets)[1]["items"] == []
    assert api.request("GET", "/api/v1/namespaces/kube-system/secrets")[1]["items"] == []


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_field_that_no_schema_has_is_refused(run: Run, tmp_path: Path) -> None:
    wrong = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    printed = run("kubectl", "create", "-f", as_file(tmp_path, {**wrong, "spec": {"hrad": {}}}), ok=False).stderr
    assert "'hrad' was unexpected" in printed


def test_a_priority_keeps_its_value(api: KubernetesApi) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    (urgent,) = priority_class_manifests([PriorityClass(name="urgent", value=1000)])
    assert api.request("POST", path, urgent)[0] == 201
    status, answer = api.request("PATCH", f"{path}/urgent", {"value": 2000})
    assert (status, answer["reason"]) == (422, "Invalid")
    assert api.request("GET", f"{path}/urgent")[1]["value"] == 1000


def test_a_team_works_in_its_namespace_only(run: Run, api: KubernetesApi, tmp_path: Path) -> None:
    team = team_manifests(TEAM, task_governance=False)
    run("kubectl", "create", "-f", as_file(tmp_path, *team))
    (binding,) = (item for item in team if item["kind"] == "RoleBinding")
    PEOPLE["of-the-team"] = ("someone", [binding["subjects"][0]["name"]])
    as_member = ("--token", "of-the-team")
    run("kubectl", "get", "pods", "-n", "research", *as_member)
    printed = run("kubectl", "get", "pods", "-n", "default", *as_member, ok=False).stderr
    assert (
        'pods is forbidden: User "someone" cannot list resource "pods" in API group "" in the namespace "default"'
        in printed
    )
    assert "Forbidden" in run("kubectl", "delete", "quota", "--all", "-n", "research", *as_member, ok=False).stderr
    assert "Unauthorized" in run("kubectl", "get", "pods", "--token", "nobody's", ok=False).stderr
    # As on a real server, permissions are checked first: a caller without any does not learn which kinds exist.
    unserved = ("kubectl", "get", "--raw", "/apis/kueue.x-k8s.io/v1beta1/namespaces/research/workloads")
    assert "Forbidden" in run(*unserved, *as_member, ok=False).stderr
    assert "NotFound" in run(*unserved, ok=False).stderr


ALLOWED = (
    "Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=c&X-Amz-Date=d"
    "&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Signature=s"
)
STS = "https://127.0.0.1:9"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "k8s-aws-v1.!",
        f"https://elsewhere:9/?{ALLOWED}",
        f"http://127.0.0.1:9/?{ALLOWED}",
        f"{STS}/somewhere?{ALLOWED}",
        f"{STS}/?{ALLOWED}&Policy=x",
        f"{STS}/?{ALLOWED}&Action=AssumeRole",
        f"{STS}/?{ALLOWED}".replace("GetCallerIdentity", "AssumeRole"),
        f"{STS}/?{ALLOWED}".replace("x-k8s-aws-id", "x-other"),
        f"{STS}/?{ALLOWED}".replace("60", "3600"),
    ],
)
def test_a_token_holds_one_request_of_one_sts(wrong: str, tmp_path: Path) -> None:
    """A token must not make the engine send another request. An attempt would fail here, because nothing listens."""
    callers = Callers(STS, tmp_path / "nothing")
    assert callers.arn("one", token(wrong)) is None
    with pytest.raises(OSError):
        callers.arn("one", token(f"{STS}/?{ALLOWED}"))


def token(url: str) -> str:
    return url if not url.startswith("http") else f"k8s-aws-v1.{base64.urlsafe_b64encode(url.encode()).decode()}"


# -- both kinds of API -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["recording", "real"])
def either(request: pytest.FixtureRequest, start: Start, certificate: tuple[Path, Path]) -> Start:
    if request.param == "recording":
        return start
    if built() is None:
        pytest.skip("no kube-apiserver is built here: make kubernetes-apiserver")
    return real.start("https://127.0.0.1:9", certificate[0])


def test_it_stays_over_a_restart_until_it_is_deleted(either: Start, tmp_path: Path) -> None:
    apis = Apis(tmp_path, either)
    before = apis.create("one")
    karpenter.install(before)
    (pool,) = (
        item for item in karpenter_manifests(AutoscalingConfig(instance_groups=("p5",))) if item["kind"] == "NodePool"
    )
    path = "/apis/karpenter.sh/v1/nodepools"
    wait_for(lambda: before.request("GET", path)[0] == 200)
    assert before.request("POST", path, pool)[0] == 201
    assert before.request("POST", path, {**pool, "metadata": {"name": "x"}, "spec": {}})[0] == 422
    apis.end()

    again = Apis(tmp_path, either)
    after = again.get("one")
    assert after is not None and after is not before
    assert (after.url, after.certificate_authority) == (before.url, before.certificate_authority)
    assert after.request("GET", f"{path}/hyperpod")[1]["spec"] == pool["spec"]
    again.delete("one")
    assert again.get("one") is None and list(tmp_path.iterdir()) == []
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", urlsplit(after.url).port or 0), timeout=5)


def wait_for(what: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.1)
