"""The constants of a format for the integer conversions of `_device.narrow`."""

from ptxdiff.references.formats import Format


def fields(fmt: Format) -> dict[str, int]:
    """The compile-time constants of `narrowed`; in a format without NaN the largest number replaces it."""
    nan = fmt.max_finite if fmt.canonical_nan is None else fmt.canonical_nan
    return {"EXPONENT": fmt.exponent_bits, "MANTISSA": fmt.mantissa_bits, "LARGEST": fmt.max_finite, "NAN": nan}
