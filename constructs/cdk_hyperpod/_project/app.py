"""The stacks of cluster.yaml. Add stacks of your own to the app below them."""

import sys

from aws_cdk import App

from cdk_hyperpod import HyperPodError, load_config
from cdk_hyperpod.stacks import add_stacks

app = App(analytics_reporting=False, stack_traces=False)
try:
    # `-c config=PATH` names another file.
    add_stacks(app, load_config(app.node.get_context("config")))
except HyperPodError as error:
    sys.exit(str(error))
app.synth()
