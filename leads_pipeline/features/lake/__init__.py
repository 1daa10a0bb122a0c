"""The lake: the tables of leads as Parquet files or Delta tables.

They are written from leads.duckdb at each publication.

    step.py              which of them a publication makes
    parquet_tables.py    a tree of Parquet files for each publication
    delta.py             Delta tables, in the folder or a bucket
    people.py            whom Delta tables in a bucket hold
    questions.py         what `doctor` and `verify` ask
"""

from typing import Final

from leads_pipeline.features.feature import Feature

FEATURE: Final = Feature(
    name="lake",
    settings="leads_pipeline.features.lake.settings:LakeSettings",
    derives=("tables", ".versions/tables-*"),
    steps="leads_pipeline.features.lake.step:steps",
    questions="leads_pipeline.features.lake.questions:questions",
    verifier="leads_pipeline.features.lake.questions:verify",
    holds_people="leads_pipeline.features.lake.people:LeadsInDelta",
)
