import pytest

from holdfast_sidecar.config.loading import parse_duration, parse_size, read_value, write_value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("500ms", 0.5),
        ("1d", 86400),
        (" 1.5 s ", 1.5),
        (".5s", 0.5),
        ("1_000", 1000),
    ],
)
def test_durations_are_read_in_the_units_people_write(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "1h30m", "-5s", "1e999s", "0x10"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is written"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("65536", 65536), ("64MiB", 2**26), ("64m", 2**26), ("2GB", 2 * 10**9)]
)
def test_sizes_are_read_in_the_units_people_write(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("name", "kind", "given", "value"),
    [
        ("every_s", float, "5m", 300.0),
        ("every_s", float, 300, 300.0),
        ("every_s", float, "3e2", 300.0),
        ("reserve_bytes", int, "1MiB", 2**20),
        ("peer_bytes_per_s", float, "1GB", 1e9),
        ("keep", int, "3", 3),
        ("keep", int, 3.0, 3),
        ("max_restarts", int, "-1", -1),
        ("ratio", float, "1.25", 1.25),
        ("url", str, "", ""),
        ("is_on", bool, "yes", True),
        ("is_on", bool, False, False),
    ],
)
def test_a_value_becomes_the_type_of_its_setting(
    name: str, kind: type, given: object, value: object
) -> None:
    read = read_value(name, kind, given)
    assert read == value
    assert type(read) is kind
    assert read_value(name, kind, write_value(read)) == read


@pytest.mark.parametrize(
    ("name", "kind", "given"),
    [
        ("ratio", float, "5m"),
        ("ratio", float, "inf"),
        ("keep", int, True),
        ("keep", int, "2.5"),
        ("keep", int, [3]),
        ("every_s", float, "-1"),
        ("reserve_bytes", int, -1),
        ("per_gpu_hour", float, "-1"),
        ("is_on", bool, "perhaps"),
        ("url", str, 3),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, kind: type, given: object) -> None:
    with pytest.raises(ValueError, match=r"expected|must not be negative"):
        read_value(name, kind, given)
