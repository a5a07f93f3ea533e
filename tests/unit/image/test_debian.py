"""The choice of Debian packages, and their files as the image has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from codegen.image.debian import Package, closure, merge_usr, needed_names, parse_packages
from codegen.image.tree import file, link

SHOWN = """\
Package: libssl3
Source: openssl
Version: 3.0.1-1
Architecture: arm64
Depends: libc6 (>= 2.34), debconf (>= 0.5) | debconf-2.0
Pre-Depends: libzstd1
Description: libraries
 Depends: nothing, this is a text
SHA256: aa11

Package: libc6
Version: 2.36-9
Architecture: arm64
SHA256: bb22
"""


def package(name: str, dependencies: str) -> Package:
    return Package(name, "1", "amd64", "", dependencies)


def test_packages_are_read_from_the_paragraphs_of_apt_cache() -> None:
    needed = "libzstd1, libc6 (>= 2.34), debconf (>= 0.5) | debconf-2.0"
    assert list(parse_packages(SHOWN)) == [
        Package("libssl3", "3.0.1-1", "arm64", "aa11", needed),
        Package("libc6", "2.36-9", "arm64", "bb22", ""),
    ]
    assert list(parse_packages("")) == []


@pytest.mark.parametrize(
    ("dependencies", "names"),
    [
        ("", []),
        ("libc6 (>= 2.34), zlib1g:any", ["libc6", "zlib1g"]),
        ("debconf (>= 0.5) | debconf-2.0, libc6", ["libc6"]),
        ("cdebconf | debconf-2.0", ["cdebconf"]),
        ("libreadline8 (>= 7.0~beta), media-types | mime-support", []),
    ],
)
def test_the_first_alternative_counts_unless_one_is_excluded(dependencies: str, names: list[str]) -> None:
    assert list(needed_names(dependencies)) == names


def test_a_closure_has_each_package_once_and_names_what_apt_lacks() -> None:
    candidates = {
        "python3.13": package("python3.13", "libc6, libssl3"),
        "libssl3": package("libssl3", "libc6, debconf"),
        "libc6": package("libc6", "libgcc-s1"),
        "libgcc-s1": package("libgcc-s1", "libc6"),
    }

    def describe(names: Iterable[str]) -> Mapping[str, Package]:
        return {name: candidates[name] for name in names if name in candidates}

    assert [chosen.name for chosen in closure(["python3.13"], describe)] == [
        "libc6",
        "libgcc-s1",
        "libssl3",
        "python3.13",
    ]
    candidates["libc6"] = package("libc6", "libnew1")
    with pytest.raises(LookupError, match="apt has no package libnew1"):
        closure(["libssl3"], describe)


def test_all_libraries_are_below_usr() -> None:
    tree = {"lib/x86_64-linux-gnu/libc.so.6": file("x"), "usr/lib/y": file("y"), "lib64/ld.so.2": link("/lib/ld.so.2")}
    assert list(merge_usr(tree)) == ["usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/y", "usr/lib64/ld.so.2"]
