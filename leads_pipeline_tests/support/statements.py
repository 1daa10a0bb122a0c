"""The statements that flattening runs, as files, so that a review shows what a change does to them.

`.venv/bin/python -m leads_pipeline_tests.support.statements` writes them anew.
"""

from pathlib import Path

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.flatten.statement import statements_of

FOLDER = Path(__file__).with_name("golden")


def generated(kind: LeadKind) -> str:
    """All statements of a kind, each after the name of its table."""
    return "".join(
        f"-- {table}, {which}\n{statement.strip()};\n\n"
        for table, statements in statements_of(kind).items()
        for which, statement in zip(("plain leads", "odd leads"), statements, strict=True)
    )


if __name__ == "__main__":
    for each in LEAD_KINDS:
        (FOLDER / f"{each.name}.sql").write_text(generated(each))
