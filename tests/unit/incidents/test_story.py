from holdfast_sidecar.incidents.explain import tell, whom
from holdfast_sidecar.records.plan import NEVER_SEEN, Incident


def chapters(**given: object) -> list[str]:
    facts = {"detected_unix_s": 10.0, "step_reached": 9} | given
    incident = Incident("x", 0, "crash", "a", [1], 0.9, **facts)  # type: ignore[arg-type]
    return [chapter.what for chapter in tell(incident).chapters]


def test_of_a_job_that_others_restart_nothing_is_claimed_that_they_alone_know() -> None:
    told = chapters(decided="leave", recovered_unix_s=70.0, step_resumed=9)
    assert told[2:] == [
        "decided: what follows is for whoever launched the job",
        "every rank was stepping again",
    ]
    over = Incident("x", 0, "hang", decided="end", recovered_unix_s=70.0, step_reached=9)
    assert tell(over).lost_steps is None


def test_why_the_job_was_stopped_over_it_is_told() -> None:
    told = chapters(decided="stop", ended_unix_s=11.0, stopped_for="2 of 2 restarts are used up")
    assert told[-1] == "decided: stop (2 of 2 restarts are used up)"


def test_of_a_job_of_ours_it_is_known_where_it_went_on() -> None:
    told = chapters(decided="restart", reopened_unix_s=11.0, recovered_unix_s=70.0, step_resumed=8)
    assert told[2:] == [
        "decided: restart; the next attempt was opened",
        "every rank was stepping again, from step 8",
    ]


def test_where_numbers_went_wrong_the_last_step_before_that_is_told() -> None:
    facts = {"detected_unix_s": 10.0, "step_reached": 59, "onset_step": 51}
    told = tell(Incident("x", 0, "nonfinite", **facts))  # type: ignore[arg-type]
    assert told.chapters[0].what == "first sign of trouble, after step 50"
    crashed = tell(Incident("x", 0, "crash", **facts))  # type: ignore[arg-type]
    assert crashed.chapters[0].what == "first sign of trouble, after step 59"


def test_of_a_run_whose_steps_nobody_sees_no_step_is_claimed() -> None:
    why = f"{NEVER_SEEN}: over as every rank lived on for 661 s"
    told = chapters(decided="restart", reopened_unix_s=11.0, recovered_unix_s=672.0, evidence=[why])
    assert told[-1] == "every rank had lived on; steps of this run are not seen"


def test_nobody_is_blamed_for_an_end_that_somebody_asked_for() -> None:
    assert whom("", [], "stop") == "nobody"
    assert whom("", [], "crash") == "culprit unknown"
