"""Whether HyperPod's Helm chart can be installed: it is there, whole, and the one that was meant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import Finding
from ..kubernetes.helm_chart import GET_CHART, HelmChart
from ..typed.words import show, shown_name


def check_chart(
    path: Path, shown: str, *, digest: str | None, image_registry: str | None, neuron: bool
) -> Iterator[Finding]:
    """Whether the chart is there, whole, the one that was meant, and can be installed where there is no internet."""
    place = "eks.dependencies_chart"
    try:
        chart = HelmChart(path)
    except FileNotFoundError:
        yield Finding(path=place, problem=f"there is no chart {show(shown)}", remedy=f"get it with: {GET_CHART}")
        return
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else shown_name(str(error), 300)
        yield Finding(
            path=place, problem=f"{show(shown)} is not a Helm chart ({reason})", remedy=f"get it with: {GET_CHART}"
        )
        return
    if chart.missing:
        yield Finding(
            path=place,
            problem=f"{show(shown)} lacks the charts that it depends on: {', '.join(chart.missing)}",
            remedy=f"run helm dependency update on it, or get it with: {GET_CHART}",
        )
    if digest is None:
        yield Finding(
            path=f"{place}_digest",
            problem="is missing, and the chart must be the one that you looked at",
            remedy=f"add `dependencies_chart_digest: {chart.digest}`",
        )
    elif digest != chart.digest:
        yield Finding(
            path=f"{place}_digest",
            problem=f"the chart's content is {chart.digest}, got {digest}",
            remedy="look at what changed, then change the digest; or use the chart that has this digest",
        )
    for name, image in chart.public_images() if image_registry else ():
        if neuron or "neuron-device-plugin" not in name:
            yield Finding(
                path=place,
                problem=f"{name} takes {image} outright, which no setting can change",
                remedy=f"write {image_registry}/{image.partition('/')[2]} there, and change the digest",
            )
