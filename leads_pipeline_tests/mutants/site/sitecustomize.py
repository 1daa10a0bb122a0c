"""Puts the mutant that the environment names into each Python process that starts with this folder on its path."""

import os
import sys
from pathlib import Path

if "MUTANT" in os.environ:
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from leads_pipeline_tests.mutants.patching import apply_named

    apply_named()
