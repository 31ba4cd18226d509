"""CRC-32C (Castagnoli), as TFRecord files have it.

Python looks a byte up in 256 numbers; long data goes through NumPy in blocks side by side, whose
checksums are joined: appending n zero bytes is a matrix over bits, so it is squared log2(n) times.
"""

from __future__ import annotations

import numpy as np

_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8
_LANES = 1024  # blocks side by side


def _table() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    made = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        made = np.where(made & 1, (made >> 1) ^ np.uint32(_POLYNOMIAL), made >> 1)
    return made


TABLE = _table()
_LISTED = TABLE.tolist()


def crc32c(data: bytes) -> int:
    """The checksum of some bytes."""
    rest = len(data) % _LANES if len(data) >= 8 * _LANES else len(data)
    crc = _bytewise(0xFFFFFFFF, data[:rest])
    if rest < len(data):
        crc = _side_by_side(crc, np.frombuffer(data, np.uint8, offset=rest).reshape(_LANES, -1))
    return crc ^ 0xFFFFFFFF


def _bytewise(crc: int, data: bytes) -> int:
    for byte in data:
        crc = _LISTED[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


def _side_by_side(crc: int, blocks: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> int:
    """The state after rows of bytes, of which each is taken from zero at first."""
    states = np.zeros(len(blocks), np.uint32)
    for column in np.ascontiguousarray(blocks.T):
        states = TABLE[(states ^ column) & 0xFF] ^ (states >> 8)
    shift = _zeros(blocks.shape[1])
    for state in states.tolist():
        crc = _applied(shift, crc) ^ state
    return crc


def _zeros(count: int) -> list[int]:
    """The matrix, by its columns, of so many zero bytes."""
    made = [1 << bit for bit in range(32)]
    power = [_LISTED[(1 << bit) & 0xFF] ^ ((1 << bit) >> 8) for bit in range(32)]
    while count:
        if count & 1:
            made = [_applied(power, column) for column in made]
        power = [_applied(power, column) for column in power]
        count >>= 1
    return made


def _applied(matrix: list[int], vector: int) -> int:
    total, bit = 0, 0
    while vector:
        if vector & 1:
            total ^= matrix[bit]
        vector >>= 1
        bit += 1
    return total


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord files keep it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF
