"""Seeds as pure functions of the place where they are used, so that no generator state is saved."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """Returns a seed in 0..2**63-1, a pure function of the integers and their order.

    The values are folded through SplitMix64's finaliser (Steele, Lea & Flood 2014), so that neighbouring
    values give unrelated seeds.
    """
    state = 0x243F6A8885A308D3  # an arbitrary constant: the first digits of pi
    for value in values:
        state = _finalise((state ^ (value & _MASK)) + 0x9E3779B97F4A7C15 & _MASK)
    return state >> 1


def _finalise(state: int) -> int:
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
    return state ^ state >> 31
