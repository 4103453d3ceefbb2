"""Monitoring of a cluster: messages about failures, metrics of its groups, alarms and a dashboard.

Import what is in here only if an app monitors a cluster: these modules load CloudWatch, EventBridge, SNS and SQS, which costs
synthesis half a second.
May import: config, errors, interface, loader, rules, storage, typed, _common, _lambda.
"""
