"""A machine's error code in an answer, and nothing that could be a person's."""

import pytest

from leads_pipeline.features.delivery.answers import error_code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"code": "INVALID_EMAIL"}', "INVALID_EMAIL"),
        (b'[{"message": "x", "errorCode": "DUPLICATES_DETECTED"}]', "DUPLICATES_DETECTED"),
        (b'{"errors": [{"code": "too_long"}]}', "too_long"),
        (b'{"error": {"code": 1042}}', "1042"),
        (b'{"status": "error", "category": "VALIDATION_ERROR"}', "VALIDATION_ERROR"),
        (b'{"code": "Quill"}', ""),
        (b'{"code": "jane_smith"}', ""),
        (b'{"code": "447700900123"}', ""),
        (b'{"code": "j1@example.org"}', ""),
        (b'{"code": {"code": "A_B"}}', ""),
        (b'{"message": "A_B"}', ""),
        (b"[" * 100_000, ""),
        (b"not json", ""),
        (b"[]", ""),
        (b"\xff", ""),
    ],
)
def test_a_code_is_found_and_a_name_is_not(body: bytes, code: str) -> None:
    assert error_code(body, {"jane", "quill"}) == code
