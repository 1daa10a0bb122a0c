"""Writes what is made from code: reference pages, questions, findings, settings, `.env.example`,
`llms.txt`.

`make pages` runs it. test_pages.py and test_settings.py say if a page is stale.
"""

from leads_pipeline_tests.docs import (
    findings_page,
    llms_page,
    questions_page,
    reference_pages,
    settings_pages,
)

if __name__ == "__main__":
    for maker in (reference_pages, questions_page, settings_pages, findings_page, llms_page):
        for path, text in maker.pages().items():
            path.write_text(text, encoding="utf-8")
