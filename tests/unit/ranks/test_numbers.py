"""Losses and gradient norms that went wrong are told; what only varies is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from tests.unit.ranks.scene import history, look, moment, ranks

from holdfast.contract.page import Record, RecordFlag, Word, float_bits
from holdfast_sidecar.config.settings import NumbersSettings
from holdfast_sidecar.ranks.checks import SCALER, SCALER_GIVES_UP, TOLD_FOR_S, find_bad_numbers
from holdfast_sidecar.ranks.history import SETTLED, WINDOW, NumberHistory, follow_numbers
from holdfast_sidecar.ranks.observation import RankHistory, RankLook
from holdfast_sidecar.records.findings import Finding, Kind

SETTINGS = NumbersSettings()
NAN, INF = math.nan, math.inf
LONG = 30_000
"""Steps of a healthy job in which nothing may be called a spike."""


def record(step: int, loss: float | None = None, norm: float | None = None) -> Record:
    flags = (RecordFlag.LOSS if loss is not None else 0) | (
        RecordFlag.GRADIENT if norm is not None else 0
    )
    return Record(step, step, 0, 0, 0, 0, 0, 0, 0, 0, loss or 0.0, flags, norm or 0.0)


def losses(values: Iterable[float], first: int = 1) -> list[Record]:
    return [record(step, loss=value) for step, value in enumerate(values, first)]


def norms(values: Iterable[float], first: int = 1) -> list[Record]:
    return [record(step, norm=value) for step, value in enumerate(values, first)]


def seen(records: Sequence[Record]) -> RankLook:
    """A look at a rank that told these."""
    base = look(1.0, step=records[-1].step, records=tuple(records))
    words = list(base.words)
    for told in records:
        if told.flags & RecordFlag.LOSS:
            words[Word.LOSS_BITS], words[Word.LOSS_STEP] = float_bits(told.loss), told.step
        if told.flags & RecordFlag.GRADIENT:
            words[Word.GRADIENT_BITS] = float_bits(told.gradient_norm)
            words[Word.GRADIENT_STEP] = told.step
    words[Word.NONFINITE] = sum(not math.isfinite(r.loss) for r in records)
    words[Word.NONFINITE_GRADIENTS] = sum(not math.isfinite(r.gradient_norm) for r in records)
    return RankLook(base.identity, 1.0, tuple(words), False, base.process, base.records)


def past(records: Sequence[Record]) -> RankHistory:
    return history(seen(records))


def found(one: RankHistory) -> list[Finding]:
    return list(find_bad_numbers(ranks(one), SETTINGS, moment(1.0)))


def after(
    records: Sequence[Record], settings: NumbersSettings = SETTINGS, at_a_time: int = 50
) -> NumberHistory:
    made = NumberHistory()
    for start in range(0, len(records), at_a_time):
        made = follow_numbers(made, records[start : start + at_a_time], settings)
    return made


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", [losses, norms])
def test_what_is_no_number_is_found_and_said_since_when(
    kind: Callable[..., list[Record]], bad: float
) -> None:
    (finding,) = found(past(kind([1.0, 1.0, bad, bad])))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.NONFINITE, [0], False)
    what = "losses" if kind is losses else "gradient norms"
    assert f"2 {what} so far were NaN or Inf, without a break since step 3" in finding.evidence[0]


def test_what_was_no_number_a_moment_ago_is_still_told_and_what_was_long_ago_is_not() -> None:
    passed_over = past(losses([1.0, NAN, 1.0]))
    (finding,) = found(passed_over)
    assert "without a break" not in finding.evidence[0]
    a_minute_later = find_bad_numbers(ranks(passed_over), SETTINGS, moment(1.1 + TOLD_FOR_S))
    assert list(a_minute_later) == []
    assert found(past(losses([1.0] * 5))) == []


def test_one_that_was_before_the_first_look_is_told_too() -> None:
    one = look(1.0, step=900)
    words = list(one.words)
    words[Word.NONFINITE] = 1  # its record was overtaken long ago
    assert found(history(RankLook(one.identity, 1.0, tuple(words), False, one.process)))


def test_they_are_counted_in_a_row_whichever_of_the_two_is_ill() -> None:
    records = [
        record(1, 1.0, 1.0),
        record(2, 1.0, NAN),
        record(3, NAN, INF),
        record(4),  # nothing became known
        record(5, NAN),
    ]
    assert after(records, at_a_time=2).ill_steps == 3
    assert after([*records, record(6, 1.0)]).ill_steps == 0
    assert past(records).onset_step == 2


def test_gradients_that_were_not_used_are_over_with_the_next_loss_that_is_a_number() -> None:
    passed_over = past([record(1, 1.0, NAN), record(2, 1.0)])
    assert passed_over.onset_step == -1
    used = past([record(1, 1.0, NAN), record(2, NAN)])
    assert used.onset_step == 1


def test_a_loss_scaler_that_never_gets_low_enough_is_told() -> None:
    def scaler(skips: int) -> RankHistory:
        one = look(1.0)
        words = list(one.words)
        words[Word.SCALER_SKIPS] = skips
        return history(RankLook(one.identity, 1.0, tuple(words), False, one.process))

    assert found(scaler(SCALER_GIVES_UP - 1)) == []
    (finding,) = found(scaler(SCALER_GIVES_UP))
    assert (finding.kind, finding.what) == (Kind.NONFINITE, SCALER)


def test_a_loss_far_above_usual_is_a_spike_once_it_lasts() -> None:
    chance = random.Random(1)
    usual = [chance.gauss(2.0, 0.05) for _ in range(200)]
    spiking = past(losses([*usual, *[4.0] * SETTINGS.spike_steps]))
    (finding,) = found(spiking)
    assert (finding.kind, finding.acts) == (Kind.SPIKE, False)
    assert "the loss has been more than 10 deviations above usual" in finding.evidence[0]
    assert finding.evidence[0].endswith("for 5 steps, since step 201")
    assert found(past(losses([*usual, *[4.0] * (SETTINGS.spike_steps - 1)]))) == []
    assert found(past(losses([*usual, *[4.0] * 9, 2.0]))) == []
    assert found(past(losses([*usual, *[0.1] * 9]))) == []


def test_a_gradient_norm_spikes_by_its_factor() -> None:
    chance = random.Random(1)
    usual = [math.exp(chance.gauss(0.0, 0.5)) for _ in range(200)]
    (finding,) = found(past(norms([*usual, *[500.0] * 5])))
    assert "the gradient norm has been" in finding.evidence[0]
    assert found(past(norms([*usual, *[8.0] * 5]))) == []


def test_spikes_are_counted_once_each() -> None:
    usual, spike = [2.0] * 100, [9.0] * 6
    made = after(losses([*usual, *spike, *usual, *spike, 2.0, 9.0, 2.0]), at_a_time=3)
    assert (made.spikes, made.spike) == (2, None)


def test_a_loss_that_keeps_its_new_level_has_moved_there() -> None:
    moved = [*[2.0] * 200, *[9.0] * WINDOW]
    assert after(losses(moved[:-1])).spike is not None
    assert after(losses(moved)).spike is None
    back_again = after(losses([*moved, *[18.0] * 5]))
    assert back_again.spike is not None


def test_nothing_is_unusual_before_enough_is_known() -> None:
    assert after(losses([*[2.0] * (SETTLED - 9), *[99.0] * 9])).spike is None
    assert after(losses([*[2.0] * SETTLED, *[99.0] * 9])).spike is not None


def test_it_does_not_matter_in_which_portions_records_are_read() -> None:
    chance = random.Random(3)
    told = losses([*(chance.gauss(2.0, 0.1) for _ in range(300)), *[5.0] * 6])
    for at_a_time in (1, 13, 306):
        spike = after(told, at_a_time=at_a_time).spike
        assert spike is not None
        assert spike.onset_step == 301


def test_history_stays_bounded() -> None:
    made = after(losses([2.0] * 5000 + [9.0] * 100))
    assert max(len(made.loss.usual), len(made.loss.beyond)) <= WINDOW


def _falling(step: int, chance: random.Random) -> float:
    return 2.0 + 8.0 * math.exp(-step / 3000) + chance.gauss(0.0, 0.15)


def _heavy_tailed(step: int, chance: random.Random) -> float:
    return 2.0 + 0.1 * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 1 / 1.5))


def _by_epochs(step: int, chance: random.Random) -> float:
    return 1.0 + 0.25 * (step % 1000 < 20) + chance.gauss(0.0, 0.05)


def _with_bad_batches(step: int, chance: random.Random) -> float:
    return 2.0 + chance.gauss(0.0, 0.1) + (20.0 if chance.random() < 0.002 else 0.0)


def _around_nothing(step: int, chance: random.Random) -> float:
    return chance.gauss(0.0, 1.0)


def _still(step: int, chance: random.Random) -> float:
    return 1e-4


@pytest.mark.parametrize(
    "curve", [_falling, _heavy_tailed, _by_epochs, _with_bad_batches, _around_nothing, _still]
)
def test_a_healthy_job_never_spikes(curve: Callable[[int, random.Random], float]) -> None:
    chance = random.Random(7)
    values = [curve(step, chance) for step in range(LONG)]
    made = after(losses(values))
    assert made.spikes == 0
    planted = after(losses([*values[:5000], *[max(values) * 3 + 1] * 5]))
    assert planted.spikes == 1


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_gradient_norms_that_vary_by_factors_never_spike(spread: float) -> None:
    chance = random.Random(7)
    warm_up = [3.0 * min(1.0, step / 500) + 0.05 for step in range(LONG)]
    values = [level * math.exp(chance.gauss(0.0, spread)) for level in warm_up]
    assert after(norms(values)).spikes == 0
