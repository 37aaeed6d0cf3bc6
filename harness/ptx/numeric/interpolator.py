"""The reciprocal that the special function unit of an H200 computes (its MUFU.RCP), bit for bit.

How such a unit works is published: a significand's upper bits choose a segment, its lower bits enter a polynomial of
second degree, whose square is made without the columns of little weight (S. F. Oberman and M. Y. Siu, "A
High-Performance Area-Efficient Multifunction Interpolator", 17th IEEE Symposium on Computer Arithmetic, 2005). What
follows was fitted to the results of an H200 for all 2**23 significands and gives every one of them
(`tests/ptx/test_interpolator.py`, `tests/gpu/test_reciprocal_unit.py`). With these widths no other coefficient does.
Other GPUs were not looked at.

`rcp.approx` keeps to the nearest value, as every approximate instruction here. The unit's own bits are needed where a
last bit decides over more: `div.approx.ftz` multiplies by them, and flushes what comes out below 2**-126.
"""

from __future__ import annotations

from harness.ptx.numeric.bits import scalar

_SEGMENT_BITS = 16
"""Bits of a significand below those that choose one of 128 segments."""

_SQUARE_CUT = 17
"""Columns of the square that are left out: those of weight below 2**17."""

_ROUNDING = 2023
"""Added before the cut to 24 bits, in units of 2**-39; it stands for what the square lacks."""

# fmt: off
_CONSTANT = (
    67108864, 66588642, 66076422, 65572021, 65075262, 64585976, 64103992, 63629146, 63161284, 62700254, 62245905,
    61798091, 61356677, 60921524, 60492499, 60069474, 59652325, 59240930, 58835170, 58434930, 58040099, 57650569,
    57266231, 56886986, 56512729, 56143366, 55778798, 55418934, 55063686, 54712961, 54366677, 54024747, 53687093,
    53353633, 53024288, 52698987, 52377651, 52060212, 51746596, 51436737, 51130565, 50828017, 50529029, 50233538,
    49941482, 49652803, 49367442, 49085342, 48806449, 48530705, 48258060, 47988464, 47721861, 47458204, 47197444,
    46939534, 46684429, 46432082, 46182446, 45935480, 45691143, 45449392, 45210185, 44973481, 44739244, 44507436,
    44278016, 44050948, 43826199, 43603730, 43383510, 43165503, 42949675, 42735995, 42524430, 42314950, 42107525,
    41902122, 41698714, 41497270, 41297764, 41100168, 40904453, 40710593, 40518561, 40328333, 40139883, 39953186,
    39768218, 39584955, 39403371, 39223448, 39045159, 38868484, 38693401, 38519888, 38347924, 38177489, 38008563,
    37841123, 37675154, 37510633, 37347543, 37185866, 37025582, 36866673, 36709124, 36552915, 36398030, 36244452,
    36092164, 35941151, 35791396, 35642884, 35495599, 35349528, 35204652, 35060959, 34918436, 34777064, 34636835,
    34497732, 34359741, 34222849, 34087044, 33952313, 33818641, 33686019,
)
"""The value at a segment's beginning, in units of 2**-26."""

_SLOPE = (
    65534, 64522, 63533, 62567, 61622, 60699, 59797, 58914, 58051, 57207, 56381, 55572, 54781, 54007, 53249, 52507,
    51780, 51068, 50371, 49688, 49019, 48363, 47721, 47091, 46473, 45868, 45274, 44692, 44121, 43560, 43011, 42471,
    41942, 41423, 40913, 40412, 39921, 39439, 38965, 38500, 38043, 37594, 37153, 36720, 36294, 35876, 35464, 35060,
    34663, 34272, 33888, 33511, 33140, 32774, 32415, 32062, 31714, 31373, 31036, 30705, 30379, 30059, 29743, 29432,
    29127, 28826, 28529, 28237, 27950, 27667, 27388, 27114, 26843, 26577, 26314, 26056, 25801, 25550, 25302, 25058,
    24818, 24581, 24348, 24117, 23890, 23667, 23446, 23228, 23014, 22802, 22593, 22388, 22184, 21984, 21787, 21592,
    21399, 21209, 21022, 20837, 20655, 20475, 20297, 20122, 19949, 19778, 19609, 19443, 19278, 19116, 18956, 18797,
    18641, 18487, 18334, 18184, 18035, 17888, 17743, 17600, 17458, 17318, 17180, 17043, 16908, 16775, 16643, 16513,
)
"""How much it falls, in units of 2**-39 for each step of 2**-23."""

_CURVE = (
    1013, 989, 966, 945, 923, 902, 883, 863, 845, 827, 809, 791, 774, 758, 742, 727, 711, 696, 682, 669, 656, 642,
    631, 618, 605, 594, 582, 572, 561, 549, 540, 529, 519, 510, 501, 490, 482, 474, 465, 457, 449, 441, 433, 426,
    418, 412, 403, 397, 390, 383, 377, 371, 366, 358, 353, 348, 341, 337, 331, 326, 320, 316, 310, 305, 302, 297,
    291, 287, 283, 279, 274, 271, 266, 263, 258, 256, 251, 248, 243, 240, 237, 233, 231, 226, 223, 222, 218, 214,
    212, 208, 205, 204, 199, 197, 196, 193, 189, 186, 184, 182, 180, 178, 175, 173, 171, 169, 166, 165, 161, 160,
    159, 155, 154, 153, 150, 149, 147, 145, 143, 143, 140, 138, 137, 135, 133, 132, 131, 130,
)
"""What the square of the steps gives back, in units of 2**-39 for each 2**17."""
# fmt: on

# One look-up for the three: 27, 16 and 10 bits.
_SEGMENTS = tuple(c << 26 | s << 10 | q for c, s, q in zip(_CONSTANT, _SLOPE, _CURVE, strict=True))


@scalar
def truncated_square(x: int) -> int:
    """The square of a 16-bit number, in units of 2**17: the sum of its partial products' columns from there on."""
    total = 0
    for i in range(_SQUARE_CUT - 8, _SEGMENT_BITS):
        row = (1 << i) + 2 * (x & ((1 << i) - 1))
        total += (x >> i & 1) * (row << i >> _SQUARE_CUT)
    return total


@scalar
def reciprocal_significand(fraction: int) -> int:
    """1 / (1 + fraction * 2**-23), in units of 2**-24, from 2**23 to 2**24, for a fraction of 23 bits."""
    segment = _SEGMENTS[fraction >> _SEGMENT_BITS]
    steps = fraction & 0xFFFF
    value = (segment >> 26 << 13) + _ROUNDING
    value += truncated_square(steps) * (segment & 0x3FF) - steps * (segment >> 10 & 0xFFFF)
    return value >> 15
