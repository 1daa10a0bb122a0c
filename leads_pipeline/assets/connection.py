"""The `connection` checks on the raw assets: whether the portal would answer now, to be run from the UI.

Belongs here: the doctor's findings as check results. Doesn't: looking (doctor/), or holding anything back: a pull
says by itself what stopped it.
"""

from collections.abc import Iterable

from dagster import AssetCheckResult, AssetChecksDefinition, AssetCheckSeverity, asset_check

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.doctor import Finding, Light, examine_inventory, examine_leads
from leads_pipeline.resources import InventoryService, LeadsService
from leads_pipeline.settings import Settings

_DESCRIPTION = (
    "Secret, clock, token and one small request, now. No pull runs it: press Execute, or `leads-pipeline doctor`"
)


def connection_checks(settings: Settings) -> list[AssetChecksDefinition]:
    """One `connection` check for each raw asset."""

    @asset_check(asset="raw_inventory", name="connection", description=_DESCRIPTION)
    def inventory_connection(inventory: InventoryService) -> AssetCheckResult:
        return _result(examine_inventory(settings, inventory))

    return [*(_leads_connection(kind, settings) for kind in LEAD_KINDS), inventory_connection]


def _leads_connection(kind: LeadKind, settings: Settings) -> AssetChecksDefinition:
    @asset_check(asset=f"raw_{kind.table}", name="connection", description=_DESCRIPTION)
    def leads_connection(leads: LeadsService) -> AssetCheckResult:
        return _result(examine_leads(settings, leads, [kind]))

    return leads_connection


def _result(findings: Iterable[Finding]) -> AssetCheckResult:
    listed = list(findings)
    lights = {finding.light for finding in listed}
    return AssetCheckResult(
        passed=lights == {Light.GREEN},
        severity=AssetCheckSeverity.ERROR if Light.RED in lights else AssetCheckSeverity.WARN,
        description="\n".join(f"- {finding.light} {finding.check}: {finding.message}" for finding in listed),
    )
