"""Values of settings: what Python makes of GVariant's bytes, and the text that it makes of values."""

import math
import unittest
from typing import Any

from unjank import Variant
from unjank._variants import decode, encode, infer, one_type


class VariantTest(unittest.TestCase):
    def test_bytes_become_values(self) -> None:
        cases: list[tuple[str, bytes, Any]] = [
            ("b", b"\1", True),
            ("i", b"\xff\xff\xff\xff", -1),
            ("t", b"\xff" * 8, 2**64 - 1),
            ("s", b"caf\xc3\xa9\0", "café"),
            ("as", b"a\0b\0\2\4", ["a", "b"]),
            ("as", b"", []),
            ("ay", b"\0\1\xff", b"\0\1\xff"),
            ("(is)", b"\5\0\0\0x\0", (5, "x")),
            ("(si)", b"x\0\0\0\5\0\0\0\2", ("x", 5)),
            ("a{sv}", b"k\0" + bytes(6) + b"\7\0\0\0\0i\2\x0f", {"k": Variant("i", 7)}),
            ("mi", b"", None),
            ("mi", b"\1\0\0\0", 1),
            ("ms", b"a\0\0", "a"),
            ("v", b"\1\0\0\0\0u", Variant("u", 1)),
            ("()", b"\0", ()),
            ("d", b"\0\0\0\0\0\0\xf8\x7f", math.nan),
        ]
        for types, data, value in cases:
            found = decode(types, data)
            self.assertTrue(found == value or found != found, (types, found))
        self.assertEqual(decode("i", b"\0\0\0\1", ">"), 1)

    def test_hostile_bytes_are_empty_values_and_never_more(self) -> None:
        import random

        draw = random.Random(3)
        for types in ("as", "a{sv}", "(sis)", "aai", "a(sv)", "v", "ms", "a{s(ii)}", "t", "o"):
            for _ in range(300):
                decode(types, draw.randbytes(draw.randrange(40)))
        nested = b"\1\0b"
        for _ in range(500):
            nested = nested + b"\0v"
        found, depth = decode("v", nested), 0
        while found.type == "v":
            found, depth = found.value, depth + 1
        self.assertEqual((found, depth), (Variant("()", ()), 129))

    def test_values_become_text(self) -> None:
        cases: list[tuple[str, Any, str]] = [
            ("b", True, "@b true"),
            ("u", 5, "@u 5"),
            ("d", 1, "@d 1.0"),
            ("d", math.inf, "@d inf"),
            ("s", "it's\n\\ \x07", "@s 'it\\'s\\n\\\\ \\U00000007'"),
            ("as", [], "@as []"),
            ("a{sv}", {"k": 5}, "@a{sv} {'k': <@i 5>}"),
            ("a{sv}", {}, "@a{sv} {}"),
            ("(s)", ("x",), "@(s) ('x',)"),
            ("(si)", ("x", 1), "@(si) ('x', 1)"),
            ("()", (), "@() ()"),
            ("mi", None, "@mi nothing"),
            ("ay", b"a\0", "@ay [97, 0]"),
            ("v", Variant("u", 1), "@v <@u 1>"),
            ("v", Variant("v", Variant("u", 1)), "@v <@u 1>"),
            ("av", [Variant("v", 1)], "@av [<@v <@i 1>>]"),
            ("i", Variant("i", 3), "@i 3"),
        ]
        for types, value, text in cases:
            self.assertEqual(encode(types, value), text)

    def test_a_value_of_another_type_is_refused(self) -> None:
        cases: list[tuple[str, Any]] = [
            ("b", 1), ("i", True), ("i", 1.5), ("s", 1), ("s", b"x"), ("as", "abc"), ("as", ["a", 1]), ("(si)", ["a", 1]),
            ("d", "1"), ("d", False), ("a{sv}", [1]), ("i", Variant("u", 1)), ("i", None), ("a{sv}", {"a": None}),
        ]  # fmt: skip
        for types, value in cases:
            with self.assertRaises(TypeError, msg=f"{types} {value}"):
                encode(types, value)
        for types, value in (("y", 256), ("q", -1), ("i", 2**31), ("t", 2**64), ("s", "a\0"), ("s", "\udcff"), ("(s)", ())):
            with self.assertRaises(ValueError, msg=f"{types} {value}"):
                encode(types, value)
        for types in ("", "ii", "a", "z", "a{vs}", "(", "{si", "a" * 200 + "i", "é", "a{s}"):
            with self.assertRaises(ValueError, msg=types):
                Variant(types, None)
        self.assertEqual(one_type("a{s(ii)}i"), 8)
        deep: Any = 1
        for _ in range(300):
            deep = Variant("v", deep)
        with self.assertRaises((ValueError, RecursionError)):
            encode("v", deep)

    def test_types_are_inferred_where_they_are_certain(self) -> None:
        for value, types in (
            (True, "b"), (1, "i"), (2**40, "x"), (1.0, "d"), ("a", "s"), (b"a", "ay"), (["a"], "as"), ([1, 2**40], "ax"),
            ((1, "a"), "(is)"), ({"a": 1}, "a{si}"), ({"a": 1, "b": "x"}, "a{sv}"), ([["a"]], "aas"),
        ):  # fmt: skip
            self.assertEqual(infer(value).type, types)
        for unknown in ([], {}, None, object(), [1, "a"], {1: 2, "a": 3}):
            with self.assertRaises(TypeError):
                infer(unknown)
