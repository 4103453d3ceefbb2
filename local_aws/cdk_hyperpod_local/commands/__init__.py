"""The commands of `cdk-hyperpod local`, which `make deploy-local` and similar targets call: options, exit codes, output.

They reach the engine through `daemon.py` and `session.py`. Only this folder imports the library.
May import: apps, assemblies, cdk, daemon, environment, errors, installation, kubectl, places, session, cdk_hyperpod.
"""
