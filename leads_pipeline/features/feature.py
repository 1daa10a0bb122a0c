"""What a feature may bring to the core.

A field exists because a feature uses it. What needs Dagster or another large package is named as `module:object`, and
loaded when it is used: `--help` doesn't wait for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Command(NamedTuple):
    """A command: where it is, as `module:object`, and its line of help."""

    place: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What a feature brings. It imports the core, and no other feature.

    `published_asset` is a function of Names: an asset that the job `publish` makes after leads.duckdb.
    """

    name: str
    commands: Mapping[str, Command] = field(default_factory=dict)
    published_asset: str = ""
