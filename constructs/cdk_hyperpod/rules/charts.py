"""Whether HyperPod's Helm chart can be installed: it exists, is complete, and has the expected digest."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from ..errors import Finding
from ..facts.device_plugins import CHART_DATE, published_chart
from ..kubernetes.health_agent import health_agent, is_older
from ..kubernetes.helm_chart import GET_CHART, HelmChart
from ..typed.known import is_known
from ..typed.words import show, shown_name


def check_chart(
    path: Path,
    shown: str,
    *,
    digest: str | None,
    image_registry: str | None,
    neuron: bool,
    closed_region: str | None = None,
) -> Iterator[Finding]:
    """Whether the chart exists, is complete, has the expected digest, is not older than the one that this release knows, and can
    be installed without internet access. `closed_region`: the region of a closed network. None: the network is open."""
    place = "eks.dependencies_chart"
    try:
        chart = HelmChart(path)
    except FileNotFoundError:
        yield Finding(
            code="chart-not-found",
            path=place,
            problem=f"there is no chart {show(shown)}",
            remedy=f"get it with: {GET_CHART}",
        )
        return
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else shown_name(str(error), 300)
        yield Finding(
            code="chart-invalid",
            path=place,
            problem=f"{show(shown)} is not a Helm chart ({reason})",
            remedy=f"get it with: {GET_CHART}",
        )
        return
    if chart.missing:
        yield Finding(
            code="chart-incomplete",
            path=place,
            problem=f"{show(shown)} lacks the charts that it depends on: {', '.join(chart.missing)}",
            remedy=f"run helm dependency update on it, or get it with: {GET_CHART}",
        )
    if digest is None:
        digest_of_chart = chart.digest
        yield Finding(
            code="chart-digest-missing",
            path=f"{place}_digest",
            problem="is missing: it makes sure that the chart is the one that you reviewed",
            remedy=f"add `dependencies_chart_digest: {digest_of_chart}`",
        )
    elif digest != chart.digest:
        actual = chart.digest
        yield Finding(
            code="chart-digest-differs",
            path=f"{place}_digest",
            problem=f"is {digest}, but the chart has the digest {actual}",
            remedy=f"review what changed in the chart, then set this to {actual}. Or use the chart that you reviewed",
        )
    yield from _check_health_agent(chart, shown, closed_region)
    for name, image in chart.public_images() if image_registry else ():
        if neuron or "neuron-device-plugin" not in name:
            image_name = image.partition("/")[2]
            yield Finding(
                code="chart-image-not-configurable",
                path=place,
                problem=f"{name} uses {image}, which no setting can change",
                remedy=f"write {image_registry}/{image_name} there, and change the digest",
            )


def _check_health_agent(chart: HelmChart, shown: str, closed_region: str | None) -> Iterator[Finding]:
    """The agent shows how old the chart is. Its image is not in every region."""
    place, known = "eks.dependencies_chart", published_chart()
    agent = health_agent(chart.files)
    if agent is None:
        return
    if is_older(agent.version, known.health_agent):
        version, newer, date = agent.version, known.health_agent, CHART_DATE
        yield Finding(
            code="chart-older",
            path=place,
            problem=f"{show(shown)} has the health monitoring agent {version}, but AWS's chart of {date} has {newer}",
            remedy=f"get it with: {GET_CHART}",
            level="warning",
        )
    if closed_region is not None and not agent.has_own_image:
        yield from check_agent_image(closed_region, agent.regions)


def check_agent_image(region: str, regions: Collection[str]) -> Iterator[Finding]:
    """Whether a closed network reaches the agent's image, which the chart takes from its own region, or else from us-east-1."""
    if is_known(region) and regions and region not in regions:
        yield Finding(
            code="health-agent-image-missing",
            path="eks.dependencies_chart",
            problem=(
                f"takes the health monitoring agent's image from us-east-1, since there is none in {region}, and the network "
                "has no internet access"
            ),
            remedy=(
                "copy the image to a registry that the nodes reach, and name it as hmaimage in the values of the chart's "
                "health-monitoring-agent"
            ),
            level="warning",
        )
