"""Images in the format of the Open Container Initiative, and as the archive that ``docker load`` reads.

https://github.com/opencontainers/image-spec has the formats. ``Healthcheck`` is Docker's addition to the configuration:
engines that follow only the specification ignore it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from codegen.image.tree import Tree, archive, file

_OF_OCI: Final = "application/vnd.oci.image"
INDEX: Final = f"{_OF_OCI}.index.v1+json"
MANIFEST: Final = f"{_OF_OCI}.manifest.v1+json"
CONFIG: Final = f"{_OF_OCI}.config.v1+json"
LAYER: Final = f"{_OF_OCI}.layer.v1.tar+gzip"
_REFERENCE: Final = "org.opencontainers.image.ref.name"


class Blob(NamedTuple):
    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    @property
    def path(self) -> str:
        return f"blobs/{self.digest.replace(':', '/')}"

    def descriptor(self, **more: Any) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content), **more}


class Layer(NamedTuple):
    """A layer: its compressed archive, the digest of the archive, and what it contains."""

    blob: Blob
    diff_id: str
    title: str


class Image(NamedTuple):
    architecture: str
    config: Blob
    layers: Sequence[Layer]

    @property
    def manifest(self) -> Blob:
        return json_blob(
            MANIFEST,
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": self.config.descriptor(),
                "layers": [layer.blob.descriptor() for layer in self.layers],
            },
        )

    @property
    def compressed_bytes(self) -> int:
        return sum(len(layer.blob.content) for layer in self.layers)


def json_blob(media_type: str, value: Mapping[str, Any]) -> Blob:
    return Blob(media_type, json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")


def layer(tree: Tree, title: str, mtime: int = 0) -> Layer:
    """A layer of files that all have one time."""
    data = archive(tree, mtime)
    blob = Blob(LAYER, gzip.compress(data, compresslevel=9, mtime=0))
    return Layer(blob, f"sha256:{hashlib.sha256(data).hexdigest()}", title)


def image(architecture: str, layers: Sequence[Layer], settings: Mapping[str, Any], created: str) -> Image:
    """An image; ``settings`` is the field ``config`` of its configuration."""
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": dict(settings),
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": created, "created_by": layer.title} for layer in layers],
    }
    return Image(architecture, json_blob(CONFIG, config), layers)


def layout(images: Iterable[Image], reference: str, annotations: Mapping[str, str]) -> Tree:
    """An image layout: one index of all images, named ``reference``."""
    images = tuple(images)
    manifests = [
        image.manifest.descriptor(platform={"os": "linux", "architecture": image.architecture}) for image in images
    ]
    index = json_blob(
        INDEX,
        {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": dict(annotations)},
    )
    outer = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [index.descriptor(annotations={_REFERENCE: reference})],
    }
    blobs = (index, *(blob for image in images for blob in _blobs(image)))
    return {
        "oci-layout": file('{"imageLayoutVersion": "1.0.0"}\n'),
        "index.json": file(json_blob(INDEX, outer).content),
        **{blob.path: file(blob.content) for blob in blobs},
    }


def loadable(image: Image, name: str) -> Tree:
    """The files of an archive in Docker's format, for ``docker load`` and ``podman load``."""
    manifest = {
        "Config": image.config.path,
        "RepoTags": [name],
        "Layers": [layer.blob.path for layer in image.layers],
    }
    blobs = (image.config, *(layer.blob for layer in image.layers))
    return {"manifest.json": file(json.dumps([manifest])), **{blob.path: file(blob.content) for blob in blobs}}


def _blobs(image: Image) -> tuple[Blob, ...]:
    return (image.manifest, image.config, *(layer.blob for layer in image.layers))
