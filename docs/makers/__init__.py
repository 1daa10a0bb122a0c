"""The makers of the pages that are made from the code."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
