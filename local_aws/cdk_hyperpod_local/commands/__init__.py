"""The commands of `cdk-hyperpod local`, which `make deploy-local` and its like call: options, exit codes, what they print.

They reach the engine by `daemon.py` and `session.py`. This is the one room that imports the library.
May import: apps, assemblies, cdk, daemon, environment, errors, installation, kubectl, places, session, cdk_hyperpod.
"""
