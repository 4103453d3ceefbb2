"""The input of the drainer's function: its environment, and a call without a request."""

from __future__ import annotations

SECRET = "nobody-has-this-key"
ENVIRONMENT = {
    "AWS_REGION": "us-west-2",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": "the-session",
    "EKS_CLUSTER": "train",
}
QUESTION = {"schema": 1, "cluster": "train", "requests": None}
