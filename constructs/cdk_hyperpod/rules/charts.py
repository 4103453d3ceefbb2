"""Whether HyperPod's Helm chart can be installed: it exists, is complete, and has the expected digest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import Finding
from ..kubernetes.helm_chart import GET_CHART, HelmChart
from ..typed.words import show, shown_name


def check_chart(
    path: Path, shown: str, *, digest: str | None, image_registry: str | None, neuron: bool
) -> Iterator[Finding]:
    """Whether the chart exists, is complete, has the expected digest, and can be installed without internet access."""
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
    for name, image in chart.public_images() if image_registry else ():
        if neuron or "neuron-device-plugin" not in name:
            image_name = image.partition("/")[2]
            yield Finding(
                code="chart-image-not-configurable",
                path=place,
                problem=f"{name} uses {image}, which no setting can change",
                remedy=f"write {image_registry}/{image_name} there, and change the digest",
            )
