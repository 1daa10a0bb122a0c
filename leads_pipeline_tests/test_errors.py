from leads_pipeline.errors import LeadsPipelineError


def test_the_message_ends_with_the_attempts_that_were_made() -> None:
    error = LeadsPipelineError("nobody answers.")
    assert (str(error), error.attempts) == ("nobody answers.", 0)
    for error.attempts, ending in ((1, "(1 attempt)"), (6, "(6 attempts)")):
        assert str(error) == f"nobody answers. {ending}"
