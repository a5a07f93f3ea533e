"""Images as OCI's specification describes them, and as `docker load` reads them."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from codegen.image import contents, oci
from codegen.image.tree import Tree, file

from tests.packages.tools import CONTAINER_SPECS

CREATED = "2026-01-02T03:04:05Z"


def image(architecture: str = "amd64") -> oci.Image:
    labels = contents.labels("1.2.3", CREATED, "c0ffee")
    layers = (oci.layer({"a": file(architecture)}, "first"), oci.layer({"b": file("b")}, "second", 5))
    return oci.image(architecture, layers, contents.settings(labels), CREATED)


def resolve(tree: Tree, descriptor: dict[str, Any]) -> bytes:
    """The blob of a descriptor, after a check of its size and digest."""
    algorithm, _, digest = descriptor["digest"].partition(":")
    content = tree[f"blobs/{algorithm}/{digest}"].content
    assert content is not None
    assert len(content) == descriptor["size"]
    assert hashlib.sha256(content).hexdigest() == digest
    return content


def read(tree: Tree, path: str) -> Any:
    return json.loads(tree[path].content or b"")


def test_a_layout_leads_from_its_index_to_the_layers_of_each_architecture() -> None:
    images = image("amd64"), image("arm64")
    tree = oci.layout(images, "1.2.3", {"org.opencontainers.image.version": "1.2.3"})
    assert read(tree, "oci-layout") == {"imageLayoutVersion": "1.0.0"}
    (outer,) = read(tree, "index.json")["manifests"]
    assert outer["annotations"] == {"org.opencontainers.image.ref.name": "1.2.3"}
    index = json.loads(resolve(tree, outer))
    assert index["annotations"] == {"org.opencontainers.image.version": "1.2.3"}
    assert [manifest["platform"] for manifest in index["manifests"]] == [
        {"os": "linux", "architecture": "amd64"},
        {"os": "linux", "architecture": "arm64"},
    ]
    for descriptor in index["manifests"]:
        manifest = json.loads(resolve(tree, descriptor))
        config = json.loads(resolve(tree, manifest["config"]))
        assert config["architecture"] == descriptor["platform"]["architecture"]
        archives = [gzip.decompress(resolve(tree, layer)) for layer in manifest["layers"]]
        diff_ids = [f"sha256:{hashlib.sha256(archive).hexdigest()}" for archive in archives]
        assert config["rootfs"] == {"type": "layers", "diff_ids": diff_ids}
        assert len(config["history"]) == len(archives)
    used = {"oci-layout", "index.json", oci.Blob("", resolve(tree, outer)).path}
    used |= {blob.path for built in images for blob in (built.manifest, built.config)}
    used |= {layer.blob.path for built in images for layer in built.layers}
    assert tree.keys() == used


def test_the_configuration_has_labels_a_user_and_dockers_health_check() -> None:
    config = json.loads(image().config.content)
    assert (config["os"], config["created"]) == ("linux", CREATED)
    settings = config["config"]
    assert settings["User"] == "10001:10001"
    assert settings["Labels"]["org.opencontainers.image.revision"] == "c0ffee"
    assert settings["Labels"]["org.opencontainers.image.version"] == "1.2.3"
    assert settings["Healthcheck"]["Test"] == ["CMD", "/usr/local/bin/healthcheck"]
    assert settings["Healthcheck"]["Interval"] == 10_000_000_000


def test_a_loadable_archive_names_the_configuration_and_the_layers() -> None:
    built = image()
    tree = oci.loadable(built, "oncelog:1.2.3")
    (manifest,) = read(tree, "manifest.json")
    assert manifest["RepoTags"] == ["oncelog:1.2.3"]
    assert [manifest["Config"], *manifest["Layers"]] == [
        built.config.path,
        *(layer.blob.path for layer in built.layers),
    ]
    assert tree.keys() == {"manifest.json", manifest["Config"], *manifest["Layers"]}


def test_equal_contents_give_equal_images() -> None:
    assert image().manifest.digest == image().manifest.digest
    assert image().manifest.digest != image("arm64").manifest.digest


@pytest.mark.peer("container-specs")
@pytest.mark.slow
def test_the_schemas_of_the_specification_accept_all_documents(tmp_path: Path) -> None:
    built = image()
    tree = oci.layout([built], "1.2.3", {})
    (outer,) = read(tree, "index.json")["manifests"]
    documents = {
        "config": [built.config.content],
        "manifest": [built.manifest.content],
        "index": [tree["index.json"].content or b"", resolve(tree, outer)],
    }
    for kind, contents_of_kind in documents.items():
        for content in contents_of_kind:
            path = tmp_path / kind
            path.write_bytes(content)
            command = [CONTAINER_SPECS.home() / "container-specs", kind, path]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    path.write_bytes(documents["config"][0].replace(b'"layers"', b'"leaves"'))
    command = [CONTAINER_SPECS.home() / "container-specs", "config", path]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
