"""The command-line tool. Nothing of it is imported at synth; each command is loaded when it is used (commands.py).

May import: config, errors, facts, kubernetes, loader, names, rules, typed, _common.assets, guard.immutable,
_lambda.hyperpod.kernel, _lambda.hyperpod.common.api, _lambda.hyperpod.scale_down.decide, _lambda.hyperpod.scale_down.model,
_lambda.hyperpod.scale_down.drain, _lambda.hyperpod.scale_down.aws.clients, _lambda.hyperpod.foundation_guard.decision,
_lambda.hyperpod.foundation_guard.look, _lambda.hyperpod.drainer.objects.
"""
