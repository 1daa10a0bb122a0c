"""The agent's hierarchy: branches belong to brands, brands to companies, companies to one group.

Branches have the ids 101, 102, …

Belongs here: which branches an id stands for. Doesn't: their listings (stock.py) or their leads
(leads.py).
"""

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from leads_pipeline.simulator.made_up import Town, town

FIRST_BRANCH: Final = 101
_FIRST_BRAND: Final = 3
_FIRST_COMPANY: Final = 7
_GROUP: Final = "1"
# Small, so that even the default set-up has brands and a company that differ.
_BRANCHES_PER_BRAND: Final = 2
_BRANDS_PER_COMPANY: Final = 2
BRANCHES_PER_COMPANY: Final = _BRANCHES_PER_BRAND * _BRANDS_PER_COMPANY
# How far branches differ in size: sigma of a log-normal, which gives about 1 : 4 between small and
# large ones.
_SIZE_SIGMA: Final = 0.5

SCOPE_KINDS: Final = ("group", "company", "brand", "branch")


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A branch; each exists once, so that it's its own key.

    `number` is its internal id where the portal writes it as an integer; `size` averages about 1.
    """

    number: int
    brand_id: str
    company_id: str
    group_id: str
    source_id: str
    town: Town
    company_town: Town
    size: float

    @property
    def id(self) -> str:
        """Its internal id as text."""
        return str(self.number)


class Organisation:
    """All branches of a made-up agent, and which of them an id of each scope kind stands for."""

    def __init__(self, seed: int, branches: int) -> None:
        self.branches = tuple(_branch(seed, index) for index in range(branches))
        self._by_scope: dict[str, list[Branch]] = {}
        for branch in self.branches:
            ids = (branch.group_id, branch.company_id, branch.brand_id, branch.id)
            for kind, id_ in zip(SCOPE_KINDS, ids, strict=True):
                self._by_scope.setdefault(f"{kind}-{id_}", []).append(branch)

    def branches_of(self, scope: str) -> list[Branch]:
        """Return the branches of `branch-101`, `brand-3`, `company-7`, `group-1` or `all`.

        There are none if the id is unknown.
        """
        return list(self.branches) if scope == "all" else self._by_scope.get(scope, [])


def _branch(seed: int, index: int) -> Branch:
    brand = index // _BRANCHES_PER_BRAND
    in_town = town(index)
    spread = Random(f"{seed}|branch|{index}").gauss(0, _SIZE_SIGMA)  # noqa: S311 - made-up data, no secret

    return Branch(
        number=FIRST_BRANCH + index,
        brand_id=str(_FIRST_BRAND + brand),
        company_id=str(_FIRST_COMPANY + index // BRANCHES_PER_COMPANY),
        group_id=_GROUP,
        source_id=f"{in_town.name[:3].upper()}-{index + 1:03}",
        town=in_town,
        company_town=town(index - index % BRANCHES_PER_COMPANY),
        size=math.exp(spread - _SIZE_SIGMA**2 / 2),
    )
