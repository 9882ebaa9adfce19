"""CRC-32C (RFC 3720, B.4): Cloud Storage and Secret Manager check what they receive with it.

In plain Python, but not byte by byte: the content is one polynomial over GF(2), held in an integer.
As long as it is long, its first part H is folded into the rest L, H * x^|L| + L being congruent to
H * (x^|L| mod P) + L, which is no more than 32 shifts of a large integer.
"""

GENERATOR = 0x11EDC6F41
REFLECTED = 0x82F63B78
SHORT_BYTES = 1024
"""Below this, byte by byte is as fast."""


def _table() -> list[int]:
    table = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = (crc >> 1) ^ (REFLECTED if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = _table()


def crc32c(content: bytes) -> int:
    """The checksum of `content`."""
    if len(content) <= SHORT_BYTES:
        return _bytewise(content, 0xFFFFFFFF) ^ 0xFFFFFFFF
    # Bit 0 is the coefficient of the highest degree: CRC-32C reads each byte from its low end. The
    # register's start value is as good as inverting the first 32 bits.
    bits = int.from_bytes(content, "little") ^ 0xFFFFFFFF
    length = len(content) * 8
    while length > SHORT_BYTES * 8:
        first = (length - 32) // 16 * 8
        length -= first
        head = bits & ((1 << first) - 1)
        bits >>= first
        factor = _power_of_x(length)
        for degree in range(32):
            if factor >> degree & 1:
                bits ^= head << (length - first - degree)
    return _bytewise(bits.to_bytes(length // 8, "little"), 0) ^ 0xFFFFFFFF


def _bytewise(content: bytes, crc: int) -> int:
    for byte in content:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc


def _power_of_x(exponent: int) -> int:
    """x^exponent modulo the generator; bit i is the coefficient of x^i."""
    power = 1
    for bit in bin(exponent)[2:]:
        power = _times(power, power)
        if bit == "1":
            power = _reduced(power << 1)
    return power


def _times(left: int, right: int) -> int:
    product = 0
    while right:
        if right & 1:
            product ^= left
        left = _reduced(left << 1)
        right >>= 1
    return product


def _reduced(value: int) -> int:
    return value ^ GENERATOR if value >> 32 else value
