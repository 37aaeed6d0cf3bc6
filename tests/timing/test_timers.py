"""Reading CUPTI's records: which kernel belongs to which launch."""

import pytest

from ptxdiff.timing.session import LostRecords, spans

START = 1_763_724_000_123_456_789  # nanoseconds since 1970, as CUPTI counts


def flush(at):
    return ("ptxdiff_flush", START + at, START + at + 30_000)


def kernel(at, length, name="elementwise_1d"):
    return (name, START + at, START + at + length)


def test_each_launch_is_between_two_flushes():
    record = [flush(0), kernel(31_000, 1536), flush(40_000), kernel(71_000, 1568)]
    assert spans(record, 2) == [1.536e-6, 1.568e-6]


def test_times_since_1970_keep_their_nanoseconds():
    """float64 would round both ends to multiples of 256 ns."""
    assert float(START) != START
    assert spans([flush(0), kernel(31_001, 1)], 1) == [1e-9]


def test_a_launch_of_several_kernels_is_counted_from_the_first_to_the_last():
    record = [flush(0), kernel(31_000, 500, "one"), kernel(31_600, 400, "Memcpy DtoD")]
    assert spans(record, 1) == [1e-6]


def test_records_may_have_any_order():
    record = [kernel(71_000, 200), flush(40_000), kernel(31_000, 100), flush(0)]
    assert spans(record, 2) == [1e-7, 2e-7]


@pytest.mark.parametrize(
    "record",
    [
        [],
        [flush(0), flush(40_000), kernel(71_000, 100)],
        [flush(0), kernel(31_000, 100)],
        [kernel(31_000, 100), flush(40_000), kernel(71_000, 100)],
    ],
)
def test_a_lost_record_is_detected(record):
    with pytest.raises(LostRecords, match="of 2 launches"):
        spans(record, 2)
