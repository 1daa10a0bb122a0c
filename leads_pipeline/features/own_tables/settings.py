"""The settings of tables of one's own."""

from leads_pipeline.settings import AbsolutePath, FeatureSettings, setting


class OwnTablesSettings(FeatureSettings):
    """Where marts and files of one's own lie."""

    marts_dir: AbsolutePath = setting(
        "LEADS_MARTS_DIR",
        "Tables of your own",
        link="guides/add-your-own-data.md#marts-and-files-of-your-own",
    )
    """A folder with marts and files of your own.

    Each `.sql`, `.csv` and `.parquet` file in it becomes a table of `leads.duckdb`
    """
