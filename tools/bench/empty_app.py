"""An app with one empty stack: what CDK itself costs."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app import use_project_node

use_project_node()

import aws_cdk as cdk

app = cdk.App(outdir=os.environ["CDK_OUTDIR"], analytics_reporting=False)
cdk.Stack(app, "Empty")
app.synth()
