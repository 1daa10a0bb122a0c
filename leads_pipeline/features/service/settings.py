"""The settings of the service."""

import re
from typing import Annotated, Final

from pydantic import PlainValidator

from leads_pipeline.settings import FeatureSettings, list_of, setting

_SERVICE: Final = "The Dagster UI of `serve` and `dev`"


def _host_names(value: str) -> tuple[str, ...]:
    """Names as a browser sends them, in lower case and without the dot that may end them."""
    names = tuple(part.lower().removesuffix(".") for part in list_of(value))
    for name in names:
        if not re.fullmatch(
            r"[a-z0-9_]([\w-]*[a-z0-9_])?(\.[a-z0-9_]([\w-]*[a-z0-9_])?)*", name, re.ASCII
        ):
            raise ValueError(
                f"holds {name!r}. Write names alone, without https:// and without a port, with "
                "commas between them: pipeline.agency.example. A name with other letters is "
                "written as browsers send it: xn--…"
            )
    return names


class ServiceSettings(FeatureSettings):
    """How people open the UI."""

    ui_hosts: Annotated[tuple[str, ...], PlainValidator(_host_names)] = setting(
        "LEADS_UI_HOSTS", _SERVICE, (), link="reference/dagster-ui.md"
    )
    """Names under which people open the UI, comma-separated: that of a proxy, as
    pipeline.agency.example. It answers under no other name, except localhost, this machine's name
    and any IP address"""
