from leads_pipeline.errors import LeadsPipelineError, PermanentError, TransientError


def test_each_kind_has_a_reason_of_its_own() -> None:
    kinds = [*TransientError.__subclasses__(), *PermanentError.__subclasses__()]
    assert len({cls("what was tried").reason for cls in kinds}) == len(kinds)


def test_the_message_ends_with_the_attempts_that_were_made() -> None:
    error = LeadsPipelineError("nobody answers.")
    assert (str(error), error.attempts) == ("nobody answers.", 0)
    for error.attempts, ending in ((1, "(1 attempt)"), (6, "(6 attempts)")):
        assert str(error) == f"nobody answers. {ending}"
