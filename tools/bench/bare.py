"""An app with the resources and assets of another one's cloud assembly, each resource as a bare CfnResource."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app import use_project_node

use_project_node()

import aws_cdk as cdk
from aws_cdk import aws_s3_assets as s3_assets

assembly = Path(os.environ["BENCH_ASSEMBLY"])
app = cdk.App(outdir=os.environ["CDK_OUTDIR"], analytics_reporting=False)
for path in sorted(assembly.glob("*.template.json")):
    stack = cdk.Stack(app, path.name.removesuffix(".template.json"), analytics_reporting=False)
    for logical_id, resource in json.loads(path.read_text("utf-8"))["Resources"].items():
        cdk.CfnResource(stack, logical_id, type=resource["Type"], properties=resource.get("Properties", {}))
for path in sorted(assembly.glob("asset.*")):
    s3_assets.Asset(stack, path.name, path=str(path))
app.synth()
