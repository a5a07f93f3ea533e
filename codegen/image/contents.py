"""Files, user, settings, labels and bill of materials of an image of oncelog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from codegen.distribution import REPOSITORY
from codegen.image.debian import Package
from codegen.image.python_packages import PythonPackage
from codegen.image.tree import Entry, Tree, file, link

ROOT: Final = Path(__file__).parents[2]
FILES: Final = ROOT / "packaging" / "container"
USER: Final = 10001
DATA: Final = "var/lib/oncelog"
CLUSTER: Final = "var/lib/oncelog-cluster"
CONFIGURATION: Final = "etc/oncelog/server.properties"
HEALTHCHECK: Final = "usr/local/bin/healthcheck"
BILL: Final = "usr/share/sbom/oncelog-image.cdx.json"
ENTRYPOINT: Final = ("/usr/local/bin/oncelog",)
COMMAND: Final = ("serve", "--config", f"/{CONFIGURATION}", "--env-prefix", "KAFKA_", "--http", "0.0.0.0:9464")
_SECOND_NS: Final = 1_000_000_000
_PROGRAM: Final = """\
#!/usr/bin/python3
import sys

from oncelog.cli.main import run

sys.exit(run())
"""


def system_files(python: str) -> Tree:
    """Files beside the packages: the user, the command, the configuration, and the directories that may be written."""
    user = f"oncelog:x:{USER}:{USER}::/{DATA}:/nonexistent\n"
    return {
        "etc/passwd": file(f"root:x:0:0::/root:/nonexistent\n{user}"),
        "etc/group": file(f"root:x:0:\noncelog:x:{USER}:\n"),
        "etc/hosts": file("127.0.0.1 localhost\n::1 localhost\n"),
        "etc/nsswitch.conf": file("passwd: files\ngroup: files\nhosts: files dns\n"),
        "usr/bin/python3": link(python),
        "usr/local/bin/oncelog": file(_PROGRAM, executable=True),
        HEALTHCHECK: file((FILES / "healthcheck.py").read_bytes(), executable=True),
        CONFIGURATION: file((FILES / "server.properties").read_bytes()),
        DATA: Entry(0o700, owner=USER),
        CLUSTER: Entry(0o700, owner=USER),
        "tmp": Entry(0o1777),
        **{name: Entry() for name in ("dev", "proc", "root", "run", "sys")},
    }


def settings(labels: Mapping[str, str]) -> dict[str, Any]:
    """The settings with which engines start a container."""
    return {
        "User": f"{USER}:{USER}",
        "Entrypoint": list(ENTRYPOINT),
        "Cmd": list(COMMAND),
        "Env": [
            "PATH=/usr/local/bin:/usr/bin",
            "LANG=C.UTF-8",
            "PYTHONDONTWRITEBYTECODE=1",
            "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
        ],
        "ExposedPorts": {"9092/tcp": {}, "9464/tcp": {}},
        "Volumes": {f"/{DATA}": {}},
        "WorkingDir": "/",
        "StopSignal": "SIGTERM",
        "Labels": dict(labels),
        "Healthcheck": {
            "Test": ["CMD", f"/{HEALTHCHECK}"],
            "Interval": 10 * _SECOND_NS,
            "Timeout": 5 * _SECOND_NS,
            "StartPeriod": 60 * _SECOND_NS,
            "StartInterval": 1 * _SECOND_NS,
            "Retries": 3,
        },
    }


def labels(version: str, created: str, revision: str | None) -> dict[str, str]:
    """The labels of the image, and the annotations of its index."""
    values = {
        "title": "oncelog",
        "description": "A commit log that speaks the Kafka protocol, with exactly-once that can be inspected",
        "version": version,
        "created": created,
        "licenses": "Apache-2.0 AND 0BSD",
        "source": REPOSITORY,
        "url": REPOSITORY,
        "documentation": f"{REPOSITORY}/blob/main/docs/containers.md",
        "vendor": "The oncelog developers",
    }
    if revision is not None:
        values["revision"] = revision
    return {f"org.opencontainers.image.{name}": value for name, value in sorted(values.items())}


def bill_of_materials(
    version: str, distribution: str, packages: Iterable[Package], python_packages: Iterable[PythonPackage]
) -> dict[str, Any]:
    """The CycloneDX document of an image: its Debian and Python packages. ``distribution`` is, for example,
    debian-12."""
    family = distribution.partition("-")[0]
    components = [
        {
            "type": "library",
            "bom-ref": (purl := _debian_url(package, family, distribution)),
            "name": package.name,
            "version": package.version,
            "hashes": [{"alg": "SHA-256", "content": package.sha256}],
            "purl": purl,
        }
        for package in packages
    ]
    components += [
        {
            "type": "library",
            "bom-ref": (purl := f"pkg:pypi/{package.name}@{package.version}"),
            "name": package.name,
            "version": package.version,
            "purl": purl,
        }
        for package in python_packages
    ]
    main = {"type": "container", "bom-ref": "oncelog-image", "name": "oncelog", "version": version}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": components,
        "dependencies": [{"ref": "oncelog-image", "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _debian_url(package: Package, family: str, distribution: str) -> str:
    version = package.version.replace("+", "%2B").replace(":", "%3A").replace("~", "~")
    return f"pkg:deb/{family}/{package.name}@{version}?arch={package.architecture}&distro={distribution}"
