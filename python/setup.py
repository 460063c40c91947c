"""What pyproject.toml cannot say: the wheel has a library for one machine in it, and none for one Python.

Run by python/wheel, which puts the library and the licences in place.
"""

import re
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

LIBRARY = Path(__file__).parent / "src/unjank/libunjank.so.0"


class Wheel(bdist_wheel):
    """A wheel for every Python 3 on machines with a C library that is new enough."""

    def get_tag(self) -> tuple[str, str, str]:
        if not LIBRARY.exists():
            raise SystemExit("the library is missing. hint: python/wheel DIR builds it and the wheel")
        # The library says which versions of the C library it needs; nothing else but libgcc_s is linked.
        library = LIBRARY.read_bytes()
        needed = {int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library)}
        # Packed relocations are as new as 2.36.
        needed |= {36} if b"GLIBC_ABI_DT_RELR" in library else set()
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_").removeprefix("linux_")
        return "py3", "none", f"manylinux_2_{max(needed | {17})}_{machine}"


class WithLibrary(Distribution):
    """Has a file for one machine, so that it goes where such files go."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"bdist_wheel": Wheel}, distclass=WithLibrary)
