"""Additions of the build to the package: bill of materials (PEP 770), README with links that hold elsewhere.

hatchling loads this file by its path (pyproject.toml); it imports nothing of oncelog. Equal sources give equal bytes:
nothing here reads the clock, the machine or the network.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

VENDORED_IN: Final = "src/oncelog/console/static/vendor"
REPOSITORY: Final = "https://github.com/oncelog/oncelog"
BILL: Final = "oncelog.cdx.json"
_LINK: Final = re.compile(r"(!?\[[^\]]*\]\()(?![a-z]+:|#)([^)\s]+)")


class Vendored(NamedTuple):
    """A file of another project that the wheel contains, unchanged."""

    file: str
    name: str
    version: str
    licence_file: str
    sha256: str


VENDORED: Final = (
    Vendored(
        "htmx.min.js",
        "htmx.org",
        "2.0.11",
        "htmx.LICENSE",
        "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    ),
    Vendored(
        "htmx-ext-sse.min.js",
        "htmx-ext-sse",
        "2.2.4",
        "htmx-ext-sse.LICENSE",
        "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",
    ),
)
KAFKA_VERSION: Final = "4.4.0"
"""The release of Apache Kafka whose documentation of configuration keys the wheel contains."""


class Distribution(BuildHookInterface[Any]):
    """Puts the bill of materials into ``.dist-info/sboms``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the bill to a temporary file and name it to hatchling."""
        self._scratch = tempfile.TemporaryDirectory(prefix="oncelog-build-")
        path = Path(self._scratch.name) / BILL
        bill = bill_of_materials(Path(self.root), self.metadata.version)
        path.write_text(json.dumps(bill, indent=2) + "\n", "utf-8")
        path.chmod(0o644)
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary file."""
        self._scratch.cleanup()


class Description(MetadataHookInterface):
    """Makes the long description of README.md."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text)}


def with_absolute_links(text: str) -> str:
    """The Markdown ``text`` with links and pictures of the repository as addresses."""

    def absolute(match: re.Match[str]) -> str:
        start, target = match.groups()
        kind = "raw" if start.startswith("!") else "blob"
        return f"{start}{REPOSITORY}/{kind}/main/{target}"

    return _LINK.sub(absolute, text)


def bill_of_materials(root: Path, version: str) -> dict[str, Any]:
    """The CycloneDX document of a wheel. Raises ValueError if VENDORED does not match the vendored files."""
    folder = root / VENDORED_IN
    names = {path.name for path in folder.iterdir()}
    if names != {name for vendored in VENDORED for name in (vendored.file, vendored.licence_file)}:
        raise ValueError(f"{folder} has {', '.join(sorted(names))}: adapt VENDORED in codegen/distribution.py")
    main = f"pkg:pypi/oncelog@{version}"
    components = [*(_vendored(folder, vendored) for vendored in VENDORED), _documentation()]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": main,
                "name": "oncelog",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": main,
            }
        },
        "components": components,
        "dependencies": [{"ref": main, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _vendored(folder: Path, vendored: Vendored) -> dict[str, Any]:
    digest = hashlib.sha256((folder / vendored.file).read_bytes()).hexdigest()
    if digest != vendored.sha256:
        raise ValueError(f"{folder / vendored.file} is not {vendored.name} {vendored.version}: its SHA-256 is {digest}")
    url = f"pkg:npm/{vendored.name}@{vendored.version}"
    return {
        "type": "library",
        "bom-ref": url,
        "name": vendored.name,
        "version": vendored.version,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": [{"license": {"id": "0BSD"}}],
        "purl": url,
        "evidence": {"occurrences": [{"location": f"{VENDORED_IN.removeprefix('src/')}/{vendored.file}"}]},
    }


def _documentation() -> dict[str, Any]:
    url = f"pkg:maven/org.apache.kafka/kafka-server@{KAFKA_VERSION}"
    return {
        "type": "data",
        "bom-ref": url,
        "name": "Apache Kafka, documentation of its configuration keys",
        "version": KAFKA_VERSION,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": url,
        "evidence": {"occurrences": [{"location": "oncelog/core/configs/kafka_documentation.py"}]},
    }
