"""Writes what is made from code, as `make pages`.

test_pages.py and test_settings.py of the tests say if a page is stale.
"""

from docs.makers import (
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
