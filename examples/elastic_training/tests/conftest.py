"""The example's modules and these helpers, importable as train.py imports them: by their file names."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
