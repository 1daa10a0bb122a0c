"""A machine's error code in an answer, and an id, and nothing that could be a person's."""

import pytest

from leads_pipeline.features.delivery.answers import error_code, id_in


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"code": "INVALID_EMAIL"}', "INVALID_EMAIL"),
        (b'[{"message": "x", "errorCode": "DUPLICATES_DETECTED"}]', "DUPLICATES_DETECTED"),
        (b'{"code": "Quill"}', ""),
        (b'{"code": "jane_smith"}', ""),
        (b'{"code": "447700900123"}', ""),
        (b'{"code": "j1@example.org"}', ""),
        (b"[" * 100_000, ""),
    ],
)
def test_a_code_is_found_and_a_name_is_not(body: bytes, code: str) -> None:
    assert error_code(body, {"jane", "quill"}) == code


@pytest.mark.parametrize(
    ("body", "path", "id_there"),
    [
        (b'{"lead": {"id": 17}}', ["lead", "id"], "17"),
        (b'{"id": "a\\u001b[31m"}', ["id"], None),
        (b'{"id": "' + b"x" * 101 + b'"}', ["id"], None),
    ],
)
def test_an_id_is_a_short_text_or_a_whole_number(
    body: bytes, path: list[str], id_there: str | None
) -> None:
    assert id_in(body, path) == id_there
