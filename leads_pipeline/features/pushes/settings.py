"""The settings of pushes."""

from leads_pipeline.settings import FeatureSettings, Secret, setting


class PushSettings(FeatureSettings):
    """What `leads-pipeline receive` needs besides the portal's own settings."""

    receive_key: Secret | None = setting(
        "LEADS_RECEIVE_KEY", "Leads that the portal pushes to `leads-pipeline receive`"
    )
    """The key that the portal's pushes must carry, with 16 characters or more: `openssl rand -hex
    32`"""
