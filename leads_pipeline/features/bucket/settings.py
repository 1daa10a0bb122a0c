"""The settings of a bucket. LEADS_DATA_DIR and LEADS_WORK_DIR are the core's (settings.py)."""

import re
from typing import Annotated, Self

from pydantic import Field, PlainValidator, model_validator

from leads_pipeline.settings import FeatureSettings, https_address, names_a_store


def _address_of_store(value: str) -> str:
    """The address of a store, empty for a folder."""
    if not names_a_store(value):
        return ""
    if not re.fullmatch(
        r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w.=-]+)*/?|file:/{3,}[^/?#][^?#]*",
        value,
        re.ASCII,
    ):
        raise ValueError(
            "is neither a folder nor a store. Write s3://bucket/prefix for a bucket, file:// and a "
            "whole path for a folder that several machines mount, or a path."
        )
    return value.rstrip("/")


class BucketSettings(FeatureSettings):
    """The store that LEADS_DATA_DIR names, and how it is reached."""

    address: Annotated[str, PlainValidator(_address_of_store)] = Field(
        "", validation_alias="LEADS_DATA_DIR"
    )
    # The usual name of other tools, so it is only checked for our own bucket.
    endpoint: str | None = Field(None, validation_alias="AWS_ENDPOINT_URL")

    @model_validator(mode="after")
    def _endpoint_is_safe(self) -> Self:
        if self.address and self.endpoint:
            try:
                https_address(self.endpoint)
            except ValueError as error:
                raise ValueError(f"AWS_ENDPOINT_URL {error}") from None
        return self

    @property
    def plain_http(self) -> bool:
        """Whether the bucket's endpoint goes without https, which only one on this machine may."""
        return bool(self.address) and (self.endpoint or "").startswith("http:")
