import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from leads_pipeline.domain.bodies import cut_leads
from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.domain.json_pieces import cut_list

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["applicants", '"]}', "\\", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.sampled_from(["id", "applicants"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    elements=st.lists(values, max_size=6),
    indent=st.sampled_from([None, 0, 3]),
    is_ascii=st.booleans(),
    beside=st.dictionaries(st.text(), values, max_size=3),
)
@example(elements=[{"applicants": []}], indent=None, is_ascii=True, beside={})
@example(
    elements=[float("nan"), {"id": "\ud800"}], indent=1, is_ascii=True, beside={"": float("inf")}
)
def test_any_list_is_sliced_into_what_json_finds_in_it(
    elements: list[Any], indent: int | None, *, is_ascii: bool, beside: dict[str, Any]
) -> None:
    beside.pop("applicants", None)
    text = json.dumps({**beside, "applicants": elements}, indent=indent, ensure_ascii=is_ascii)
    try:
        body = text.encode()
    except UnicodeEncodeError:  # a lone surrogate that isn't escaped can't be on the wire
        return

    slices = cut_list("applicants", body)[0]

    found = [json.dumps(json.loads(piece)) for piece in slices]
    assert found == [json.dumps(element) for element in elements]
    position = 0
    for piece in slices:  # each exactly as received, in order
        position = body.index(piece, position) + len(piece)
    leads = cut_leads(APPLICANT, body).leads
    assert [lead.payload for lead in leads] == [piece.decode() for piece in slices]
