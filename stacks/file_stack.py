"""The common part of all stacks of a cluster file."""

from __future__ import annotations

from aws_cdk import Annotations, CrossStackReferences, Environment, ReferenceStrength, Stack
from constructs import Construct

from cdk_hyperpod import Finding, LoadedConfig


class FileStack(Stack):
    """A stack of a cluster file. It reads other stacks' outputs at deployment, and does not lock them."""

    def __init__(
        self, scope: Construct, name: str, loaded: LoadedConfig, *, description: str, env: Environment
    ) -> None:
        super().__init__(
            scope,
            name,
            stack_name=name,
            env=env,
            description=description,
            termination_protection=loaded.config.termination_protection,
            analytics_reporting=False,
            tags=dict(loaded.config.tags),
        )
        # An export could not change while it is in use; Fn::GetStackOutput locks neither stack (docs/adr/0003).
        CrossStackReferences.of(self).consume(ReferenceStrength.WEAK)

    def warn(self, findings: tuple[Finding, ...]) -> None:
        """Add the warnings about this stack's part of the file."""
        for warning in findings:
            Annotations.of(self).add_warning_v2(f"cdk-hyperpod:{warning.code}", warning.text)
