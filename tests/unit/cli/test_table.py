import pytest

from holdfast_sidecar.cli.tables import paint, size, table, wrapped
from holdfast_sidecar.records.formatting import span


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    text = table(["node", "step"], [["a", "9"], ["long", "1234"]])
    assert text == "node  step\na        9\nlong  1234"


def test_differences_are_numbers_too() -> None:
    assert table(["ms", "by"], [["9.00", "+12.10"], ["1.00", "-0.31"]]) == (
        "  ms      by\n9.00  +12.10\n1.00   -0.31"
    )


def test_a_number_is_not_parted_from_its_unit() -> None:
    line, rest = wrapped("watched", "x" * 84 + " 162 ms ago", 12)
    assert (line[-1], rest) == ("x", " " * 12 + "162 ms ago")


def test_an_empty_table_is_its_headings() -> None:
    assert table(["a", "b"], []) == "a  b"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 ms"),
        (0.012, "12 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (61, "1 min 1 s"),
        (3599.9, "1 h"),
        (3660, "1 h 1 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_spans_are_said_in_two_units_at_most(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_sizes_are_said_in_binary_units() -> None:
    assert [size(count) for count in (5, 2048, 3 * 2**20, 5 * 2**29)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "2.5 GiB",
    ]


def test_colour_goes_to_terminals_only_and_never_against_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert paint("x", "red") == "x"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert paint("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", "red") == "x"
