"""Values of settings: GVariant's bytes as values of Python, and values of Python as GVariant's text."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

# How deep values may be in one another, as in GLib.
_DEPTH = 128
# Types of a fixed size: their size, and how struct reads them.
_FIXED = {"b": (1, "B"), "y": (1, "B"), "n": (2, "h"), "q": (2, "H"), "i": (4, "i"), "u": (4, "I")}
_FIXED.update({"h": (4, "i"), "x": (8, "q"), "t": (8, "Q"), "d": (8, "d")})
_STRINGS = ("s", "o", "g")
_RANGES = {
    code: (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if form.islower() else (0, (1 << 8 * size) - 1)
    for code, (size, form) in _FIXED.items()
    if code not in "bd"
}


@dataclass(frozen=True)
class Variant:
    """A value with its type: ``Variant("u", 5)``, ``Variant("as", [])``. See Settings for the values of each type."""

    type: str
    value: Any

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or one_type(self.type) != len(self.type):
            raise ValueError(f"{self.type!r} is not a type of one value")


def one_type(types: str, begin: int = 0, depth: int = 0) -> int:
    """Returns where the type that begins at a place ends; ValueError if there is none."""
    code = types[begin : begin + 1]
    if depth > _DEPTH:
        raise ValueError("a type is too deep")
    if code in _FIXED or (code and code in "sogv"):
        return begin + 1
    if code and code in "am":
        return one_type(types, begin + 1, depth + 1)
    if code == "{":
        key = types[begin + 1 : begin + 2]
        if key not in _FIXED and key not in _STRINGS:
            raise ValueError(f"{types!r} is not a type")
        end = one_type(types, begin + 2, depth + 1)
        if types[end : end + 1] == "}":
            return end + 1
    if code == "(":
        end = begin + 1
        while types[end : end + 1] != ")":
            end = one_type(types, end, depth + 1)
        return end + 1
    raise ValueError(f"{types!r} is not a type")


def _members(types: str) -> list[str]:
    """Returns the types within brackets."""
    found, at = [], 1
    while at < len(types) - 1:
        end = one_type(types, at)
        found.append(types[at:end])
        at = end
    return found


def _alignment(types: str) -> int:
    code = types[0]
    if code in _FIXED:
        return _FIXED[code][0]
    if code in _STRINGS:
        return 1
    if code == "v":
        return 8
    if code in "am":
        return _alignment(types[1:])
    return max(map(_alignment, _members(types)), default=1)


def _fixed_size(types: str) -> int | None:
    """Returns the size of values of a type if all have the same."""
    code = types[0]
    if code in _FIXED:
        return _FIXED[code][0]
    if code in "({":
        members = _members(types)
        if not members:
            return 1
        at = 0
        for member in members:
            size = _fixed_size(member)
            if size is None:
                return None
            at = _aligned(at, _alignment(member)) + size
        return _aligned(at, _alignment(types))
    return None


def _aligned(at: int, alignment: int) -> int:
    return (at + alignment - 1) // alignment * alignment


def _offset_size(length: int) -> int:
    return 1 if length < 1 << 8 else 2 if length < 1 << 16 else 4 if length < 1 << 32 else 8


def decode(types: str, data: bytes, order: str = "<", depth: int = 0) -> Any:
    """Returns the value of bytes that GVariant serialised; bytes that are none give the empty value of the type."""
    code = types[0]
    if code in _FIXED:
        size, form = _FIXED[code]
        found = struct.unpack(order + form, data if len(data) == size else bytes(size))[0]
        return found != 0 if code == "b" else found
    if code in _STRINGS:
        try:
            return data[: data.index(0)].decode()
        except ValueError:
            return ""
    if code == "v":
        return _decode_variant(data, order, depth)
    if types == "ay":
        return data
    if code == "a":
        items = [decode(types[1:], item, order, depth + 1) for item in _items(types[1:], data)]
        return dict(items) if types[1] == "{" else items
    if code == "m":
        if not data:
            return None
        inner = data if _fixed_size(types[1:]) is not None else data[:-1]
        return decode(types[1:], inner, order, depth + 1)
    return tuple(
        decode(member, part, order, depth + 1) for member, part in zip(_members(types), _parts(types, data))
    )


def _decode_variant(data: bytes, order: str, depth: int) -> Variant:
    value, _, types = data.rpartition(b"\0")
    text = types.decode("ascii", "replace")
    try:
        is_type = one_type(text) == len(text)
    except ValueError:
        is_type = False
    # As in GLib, what is too deep is empty.
    if not is_type or depth > _DEPTH:
        return Variant("()", ())
    return Variant(text, decode(text, value, order, depth + 1))


def _number(data: bytes) -> int:
    # Offsets are little-endian, whatever the numbers in a value are.
    return int.from_bytes(data, "little")


def _items(types: str, data: bytes) -> list[bytes]:
    """Returns the bytes of the items of an array."""
    if not data:
        return []
    size = _fixed_size(types)
    if size is not None:
        if len(data) % size:
            return []
        return [data[at : at + size] for at in range(0, len(data), size)]
    width = _offset_size(len(data))
    begin = _number(data[-width:])
    if begin > len(data) or (len(data) - begin) % width:
        return []
    ends = [_number(data[at : at + width]) for at in range(begin, len(data), width)]
    alignment, at, found = _alignment(types), 0, []
    for end in ends:
        start = _aligned(at, alignment)
        found.append(data[start:end] if start <= end <= begin else b"")
        at = end
    return found


def _parts(types: str, data: bytes) -> list[bytes]:
    """Returns the bytes of the members of a tuple or a pair."""
    members = _members(types)
    width = _offset_size(len(data))
    at, behind, found = 0, len(data), []
    for number, member in enumerate(members):
        start, size = _aligned(at, _alignment(member)), _fixed_size(member)
        if size is not None:
            end = start + size
        elif number == len(members) - 1:
            end = behind
        else:
            behind -= width
            end = _number(data[max(behind, 0) : behind + width]) if behind >= 0 else -1
        is_there = start <= end <= len(data)
        found.append(data[start:end] if is_there else b"")
        at = end if is_there else len(data)
    return found


def encode(types: str, value: Any) -> str:
    """Returns a value as GVariant's text, with its type. TypeError and ValueError if it is none of this type."""
    if isinstance(value, Variant) and value.type == types:
        value = value.value
    return f"@{types} {_text(types, value, 0)}"


def _text(types: str, value: Any, depth: int) -> str:
    code = types[0]
    if depth > _DEPTH:
        raise ValueError("a value is too deep")
    if code == "b":
        _want(types, value, bool)
        return "true" if value else "false"
    if code == "d":
        if isinstance(value, bool):
            raise _wrong(types, value)
        _want(types, value, (int, float))
        number = float(value)
        return repr(number) if math.isfinite(number) else str(number)
    if code in _RANGES:
        return _integer(types, value)
    if code in _STRINGS:
        _want(types, value, str)
        return _quoted(value)
    if code == "v":
        inner = value if isinstance(value, Variant) else infer(value)
        return f"<@{inner.type} {_text(inner.type, inner.value, depth + 1)}>"
    if code == "m":
        return "nothing" if value is None else f"just {_text(types[1:], value, depth + 1)}"
    if code == "a":
        return _array(types, value, depth)
    _want(types, value, tuple)
    members = _members(types)
    if len(members) != len(value):
        raise ValueError(f"{value!r} has not as many members as the type {types}")
    texts = [_text(member, item, depth + 1) for member, item in zip(members, value)]
    if code == "{":
        return "{%s: %s}" % tuple(texts)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _array(types: str, value: Any, depth: int) -> str:
    item = types[1:]
    if item[0] == "{" and isinstance(value, dict):
        key, kept = _members(item)
        pairs = (f"{_text(key, k, depth + 1)}: {_text(kept, v, depth + 1)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}" if value else "{}"
    if item == "y" and isinstance(value, (bytes, bytearray)):
        return "[" + ", ".join(map(str, value)) + "]"
    _want(types, value, (list, tuple))
    return "[" + ", ".join(_text(item, one, depth + 1) for one in value) + "]"


def _integer(types: str, value: Any) -> str:
    if isinstance(value, bool):
        raise _wrong(types, value)
    _want(types, value, int)
    least, most = _RANGES[types[0]]
    if not least <= value <= most:
        raise ValueError(f"{value} does not fit into the type {types}")
    return str(int(value))


def _wrong(types: str, value: Any) -> TypeError:
    what = f"a Variant of the type {value.type}" if isinstance(value, Variant) else type(value).__name__
    return TypeError(f"{what} is no value of the type {types}")


def _want(types: str, value: Any, kinds: type | tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        raise _wrong(types, value)


def _quoted(text: str) -> str:
    """Returns a string as GVariant's text has it."""
    if "\0" in text:
        raise ValueError("a string has a null character in it")
    escapes = {"'": "\\'", "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    parts = (escapes.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a string cannot be written as UTF-8: {error.reason}") from None
    return "'" + "".join(parts) + "'"


def infer(value: Any) -> Variant:
    """Returns a value with the type that it most likely has. TypeError where that cannot be said: of an empty list."""
    if isinstance(value, Variant):
        return value
    if isinstance(value, bool):
        return Variant("b", value)
    if isinstance(value, int):
        return Variant("i" if -(1 << 31) <= value < 1 << 31 else "x", value)
    if isinstance(value, float):
        return Variant("d", value)
    if isinstance(value, str):
        return Variant("s", value)
    if isinstance(value, (bytes, bytearray)):
        return Variant("ay", bytes(value))
    if isinstance(value, tuple):
        return Variant("(" + "".join(infer(item).type for item in value) + ")", value)
    if isinstance(value, list) and value:
        return Variant("a" + _shared([infer(item).type for item in value]), value)
    if isinstance(value, dict) and value:
        key = _shared([infer(key).type for key in value])
        kept = {infer(item).type for item in value.values()}
        # A dictionary of several types is one of variants.
        return Variant("a{%s%s}" % (key, kept.pop() if len(kept) == 1 else "v"), value)
    raise TypeError(f"the type of {value!r} cannot be told: use unjank.Variant")


def _shared(types: list[str]) -> str:
    found = set(types)
    if found == {"i", "x"}:
        return "x"
    if len(found) != 1:
        raise TypeError(f"values of several types ({', '.join(sorted(found))}): use unjank.Variant")
    return found.pop()
