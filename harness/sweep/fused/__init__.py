"""A reference and its policies as one Triton kernel that judges on the device."""
