"""Make one Triton kernel of a reference and its policies, which judges on the device."""
