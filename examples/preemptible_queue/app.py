import sys
from pathlib import Path

from aws_cdk import App

from cdk_hyperpod import HyperPodError, load_config
from cdk_hyperpod.stacks import add_stacks

app = App()
try:
    add_stacks(app, load_config(Path(__file__).with_name("cluster.yaml")))
except HyperPodError as error:
    sys.exit(str(error))
app.synth()
