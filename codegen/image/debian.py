"""Debian packages for an image: chosen, downloaded and verified by apt, in a state of its own for each architecture.

Sources and keys are those of the machine's apt, or of a file that is named. Nothing is installed, and no script of a
package runs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from codegen.image.tree import Tree, file, link, read_archive, without

EXCLUDED: Final = frozenset(
    {
        "awk",  # base-files
        "debconf",
        "libdb5.3",  # the module _dbm
        "libdb5.3t64",
        "libncursesw6",  # _curses
        "libnsl2",  # nis
        "libreadline8",  # readline
        "libreadline8t64",
        "libtinfo6",
        "libtirpc3",
        "libtirpc3t64",
        "media-types",
        "netbase",
        "openssl",  # the program
        "tzdata",  # all times are UTC, or seconds
    }
)
"""Dependencies that a broker does not use, with the modules of Python that need them."""
DROPPED: Final = (
    *(f"usr/lib/python3*/lib-dynload/{name}.*.so" for name in ("_curses", "_curses_panel", "_dbm", "nis", "readline")),
    *(f"usr/lib/python3*/{name}" for name in ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "turtledemo")),
    *("usr/lib/python3*/sitecustomize.py", "usr/lib/*/audit", "usr/lib/*/gconv", "usr/lib/locale", "usr/sbin"),
    *(f"etc/{name}" for name in ("issue*", "ld.so.conf.d", "update-motd.d")),
    *(f"usr/share/{name}" for name in ("applications", "base-files", "binfmts", "gcc", "gdb", "lintian", "man")),
    *("usr/share/pixmaps", "usr/share/doc/*/changelog*", "usr/share/doc/*/NEWS*", "usr/share/doc/*/README*"),
)
"""Paths of packages that are left out. Copyright files stay."""
_MERGED: Final = ("bin", "sbin", "lib", "lib64")
"""Directories that are links into ``usr``, also where a package does not know that."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9+.-]*")


class Package(NamedTuple):
    name: str
    version: str
    architecture: str
    sha256: str
    dependencies: str
    """``Pre-Depends`` and ``Depends``."""


class Apt:
    """apt for one architecture, with its lists and downloads in ``directory``."""

    def __init__(self, architecture: str, directory: Path, sources: Path | None) -> None:
        self._downloads = directory / "packages"
        for folder in ("state/lists/partial", "cache/archives/partial", "packages"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        (directory / "state/status").touch()
        options = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Dir::State": directory.absolute() / "state",
            "Dir::State::status": directory.absolute() / "state/status",
            "Dir::Cache": directory.absolute() / "cache",
        }
        if sources is not None:
            options |= {"Dir::Etc::SourceList": sources.absolute(), "Dir::Etc::SourceParts": "-"}
        self._options = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]

    def update(self) -> None:
        """Fetch and verify the package lists."""
        self._run("apt-get", "--quiet=2", "update")

    def describe(self, names: Iterable[str]) -> Mapping[str, Package]:
        """The candidate of each package; unknown names are left out."""
        text = self._run("apt-cache", "show", "--no-all-versions", *names, check=False)
        return {package.name: package for package in parse_packages(text)}

    def download(self, packages: Iterable[Package]) -> Iterator[Path]:
        """Archives of packages, verified by apt against its signed lists."""
        for package in packages:
            version = package.version.replace(":", "%3a")
            path = self._downloads / f"{package.name}_{version}_{package.architecture}.deb"
            if not path.exists():
                self._run("apt-get", "--quiet=2", "download", f"{package.name}={package.version}")
            yield path

    def _run(self, program: str, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [program, *self._options, *arguments], cwd=self._downloads, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise SystemExit(f"{program} {' '.join(arguments)} failed:\n{done.stderr}")
        return done.stdout


def parse_packages(text: str) -> Iterator[Package]:
    """Packages of the paragraphs that ``apt-cache show`` prints."""
    for paragraph in text.strip().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): *(.*)$", paragraph, re.MULTILINE))
        if "Package" in fields:
            needed = ", ".join(fields[key] for key in ("Pre-Depends", "Depends") if key in fields)
            yield Package(
                fields["Package"], fields["Version"], fields["Architecture"], fields.get("SHA256", ""), needed
            )


def needed_names(dependencies: str) -> Iterator[str]:
    """The first alternative of each dependency that is not excluded."""
    for alternatives in filter(None, dependencies.split(",")):
        names = [match[0] for part in alternatives.split("|") if (match := _NAME.match(part.strip()))]
        if not EXCLUDED.intersection(names):
            yield names[0]


def closure(roots: Iterable[str], describe: Callable[[Iterable[str]], Mapping[str, Package]]) -> list[Package]:
    """``roots`` and the packages that they need, by name. Raises LookupError for a package without a candidate."""
    chosen: dict[str, Package] = {}
    missing = set(roots)
    while missing:
        described = describe(sorted(missing))
        if unknown := missing - described.keys():
            raise LookupError(f"apt has no package {', '.join(sorted(unknown))}: see `apt-cache policy`")
        chosen |= {name: described[name] for name in missing}
        missing = {name for name in missing for name in needed_names(chosen[name].dependencies)} - chosen.keys()
    return sorted(chosen.values())


def contents(path: Path) -> Tree:
    """Files of a package that the image keeps, and its entry in dpkg's status, which scanners read."""
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True, check=True).stdout
    control = subprocess.run(["dpkg-deb", "--field", path], capture_output=True, check=True).stdout
    name = path.name.partition("_")[0]
    tree = without(merge_usr(read_archive(archive)), DROPPED)
    return {**tree, f"var/lib/dpkg/status.d/{name}": file(control)}


def merge_usr(tree: Tree) -> Tree:
    """The tree with ``/lib`` and its like below ``/usr``."""
    return {(f"usr/{path}" if path.partition("/")[0] in _MERGED else path): entry for path, entry in tree.items()}


def base_tree(archives: Iterable[Path]) -> Tree:
    """The files of all packages, the links of a merged ``/usr``, and one file of all trusted certificates."""
    tree: Tree = {name: link(f"usr/{name}") for name in _MERGED[:3]}
    for path in archives:
        tree |= contents(path)
    if any(path.startswith("usr/lib64/") for path in tree):
        tree["lib64"] = link("usr/lib64")
    certificates = [path for path in sorted(tree) if path.startswith("usr/share/ca-certificates/mozilla/")]
    bundle = b"".join(content for path in certificates if (content := tree[path].content) is not None)
    tree = without(tree, ["usr/share/ca-certificates", "usr/sbin/update-ca-certificates"])
    return {**tree, "etc/ssl/certs/ca-certificates.crt": file(bundle)}
