"""The kind of the training operator. Its schema is not published: the fields are those of the SDK's model.

No jobs run here. Pod templates are not validated: the API has their schema only as a part of other kinds.
"""

from __future__ import annotations

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi, custom_kinds
from cdk_hyperpod_local.engine.kubernetes.custom_kinds import ANYTHING, TEXT, WHOLE, an_object, definition

_ELASTIC_POLICY = an_object(
    minReplicas=WHOLE,
    maxReplicas=WHOLE,
    replicaIncrementStep=WHOLE,
    replicaDiscreteValues={"type": "array", "items": WHOLE},
    scalingTimeoutInSeconds=WHOLE,
    gracefulShutdownTimeoutInSeconds=WHOLE,
    faultyScaleDownTimeoutInSeconds=WHOLE,
)
_REPLICA_SPEC = an_object(
    ("name",),
    name=TEXT,
    replicas=WHOLE,
    maxReplicas=WHOLE,
    spares=WHOLE,
    template=an_object(metadata=ANYTHING, spec=ANYTHING),
)
_RESTART_POLICY = an_object(
    ("evalPeriodSeconds",),
    evalPeriodSeconds=WHOLE,
    maxFullJobRestarts=WHOLE,
    numRestartBeforeFullJobRestart=WHOLE,
    maxNumRepeatOffendersToAvoid=WHOLE,
    scaleUpSnoozeTimeInSeconds=WHOLE,
)
_LOG_RULE = an_object(
    ("name", "logPattern"),
    name=TEXT,
    logPattern=TEXT,
    stopPattern=TEXT,
    operator=TEXT,
    metricThreshold=WHOLE,
    metricEvaluationDataPoints=WHOLE,
    expectedStartCutOffInSeconds=WHOLE,
    expectedRecurringFrequencyInSeconds=WHOLE,
)
_RUN_POLICY = an_object(
    activeDeadlineSeconds=WHOLE,
    cleanPodPolicy=TEXT,
    faultDeadlineSeconds=WHOLE,
    jobMaxRetryCount=WHOLE,
    logMonitoringConfiguration={"type": "array", "items": _LOG_RULE},
    restartPolicy=_RESTART_POLICY,
    startupDeadlineSeconds=WHOLE,
    suspend={"type": "boolean"},
    ttlSecondsAfterFinished=WHOLE,
    workloadMode=TEXT,
)
SPEC = an_object(
    nprocPerNode=TEXT,
    elasticPolicy=_ELASTIC_POLICY,
    replicaSpecs={"type": "array", "items": _REPLICA_SPEC},
    runPolicy=_RUN_POLICY,
)
KINDS = (definition("sagemaker.amazonaws.com", "HyperPodPyTorchJob", "hyperpodpytorchjobs", SPEC, namespaced=True),)


def install(api: KubernetesApi) -> None:
    custom_kinds.install(api, KINDS)
