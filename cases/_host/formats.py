"""What the integer conversions of `_device.narrow` take of a format."""

from references.formats import Format


def fields(fmt: Format) -> dict[str, int]:
    """The compile-time constants of `narrowed`; the largest number stands for NaN where the format has none."""
    nan = fmt.max_finite if fmt.canonical_nan is None else fmt.canonical_nan
    return {"EXPONENT": fmt.exponent_bits, "MANTISSA": fmt.mantissa_bits, "LARGEST": fmt.max_finite, "NAN": nan}
