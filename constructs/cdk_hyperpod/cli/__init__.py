"""The command-line tool. Nothing of it is imported at synth; each command is loaded when it is used (commands.py).

May import: config, errors, facts, kubernetes, loader, names, rules, typed, _common.assets, _lambda, guard.immutable.
"""
