"""The place of a tensor between its guard zones, and the bytes that a kernel may change."""

import ml_dtypes  # noqa: F401 - registers numpy's types
import numpy as np
import pytest

from ptxdiff.references.formats import BF16, F16, U8, U32
from ptxdiff.triton.guarded import GUARD, Layout, input_overwritten, never_written
from ptxdiff.triton.launch import TensorLayout

FORMATS = (U8, F16, BF16, U32)


@pytest.mark.parametrize("guard", [GUARD, 0])
@pytest.mark.parametrize("alignment", [16, 1])
@pytest.mark.parametrize(("shape", "stride"), [((5,), None), ((3, 4), None), ((3, 4), 7), ((0, 4), 5), ((), None)])
@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_only_an_outputs_units_may_change(fmt, shape, stride, alignment, guard):
    layout = Layout(TensorLayout("y", fmt, shape, stride), alignment, guard)
    unit = fmt.unit_bits // 8
    image = layout.image(0xA5, None)
    assert (image == 0xA5).all()
    assert layout.span.start % 16 == (0 if alignment == 16 else unit % 16)
    written = layout.image(0xA5, np.zeros(shape, dtype=fmt.numpy_dtype()))
    forbidden = layout.forbidden(is_input=False)
    np.testing.assert_array_equal(written != image, ~forbidden)
    assert (~forbidden).sum() == np.prod(shape, dtype=int) * unit
    assert layout.forbidden(is_input=True).all()
    assert layout.units(written).shape == shape
    if guard:
        assert forbidden[:guard].all()
        assert forbidden[layout.span.stop :].size >= guard
    else:
        assert len(image) == layout.span.stop, "the memory ends with the tensor"


def test_places_are_given_relative_to_the_tensor():
    layout = Layout(TensorLayout("y", U32, (4,)))
    assert [layout.where(b) for b in (250, 256, 270, 272)] == [
        "6 before its start", "0 from its start", "14 from its start", "0 past its end",
    ]  # fmt: skip
    assert never_written("y", np.array([False, True, True])) == ["2 bytes of y were never written, first byte 1"]
    assert never_written("y", np.array([False])) == []
    assert input_overwritten("x", 3, 7) == "x is an input and 3 of its bytes were overwritten, first byte 7"
