"""The settings of the lake."""

from typing import Annotated

from pydantic import PlainValidator

from leads_pipeline.settings import FeatureSettings, setting


def _tables(value: str) -> str:
    if value not in ("parquet", "delta", "none"):
        raise ValueError(
            f"is {value!r}. Write parquet, delta or none. leads.duckdb is always made."
        )
    return value


class LakeSettings(FeatureSettings):
    """What is written beside leads.duckdb."""

    tables: Annotated[str, PlainValidator(_tables)] = setting(
        "LEADS_TABLES",
        "Tables beside leads.duckdb",
        "parquet",
        link="guides/read-parquet-and-delta.md",
    )
    """What each publication writes to `tables` in the data folder: `parquet` writes the tables of
    leads as Parquet files. `delta` writes Delta tables, and needs the extra `delta`. `none` writes
    nothing"""
