"""hyperpodrun, on the torch of these tests, which the agent excludes.

torch 2.13's launcher has a `--shutdown-timeout` of its own, which the agent (1.1.3) adds once more, and argparse refuses that. Here the
agent's wins. Nothing else of the agent is changed.
"""

import sys
from argparse import ArgumentParser

from hyperpod_elastic_agent import run  # type: ignore[import-not-found]

torchs_parser = run.get_args_parser
run.get_args_parser = lambda: ArgumentParser(parents=[torchs_parser()], add_help=False, conflict_handler="resolve")

if __name__ == "__main__":
    sys.exit(run.main())
