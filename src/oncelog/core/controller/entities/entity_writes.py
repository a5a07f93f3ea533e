"""Writes the configs of users, client ids and addresses as operations on their nodes.

A node is emptied instead of deleted: a new one would start at version 0 again, and a late write could hit it.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.tree import Create, Operation, Set
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.client_entities import CLIENTS, ClientEntity, entity_path
from oncelog.core.controller.image.cluster_image import ClusterImage, configs_of


def write_entities(image: ClusterImage, configs: Mapping[ClientEntity, Mapping[str, str]]) -> list[Operation]:
    """The operations that make each entity's configs exactly ``configs``, without those already equal."""
    operations: list[Operation] = []
    made: set[str] = set()
    for entity, config_texts in configs.items():
        if configs_of(image, entity) != config_texts:
            if entity.user is not None and entity.client_id is not None:
                operations += _missing_parents(image, entity.user, configs, made)
            operations += _write(image, entity, config_texts, made)
    return operations


def _missing_parents(
    image: ClusterImage, user: str, configs: Mapping[ClientEntity, Mapping[str, str]], made: set[str]
) -> list[Operation]:
    owner = ClientEntity(user)
    operations: list[Operation] = []
    if owner not in image.client_entities:
        operations += _write(image, owner, configs.get(owner, {}), made)
    clients = f"{entity_path(owner)}/{CLIENTS}"
    if clients not in image.versions and clients not in made:
        made.add(clients)
        operations.append(Create(clients, b""))
    return operations


def _write(image: ClusterImage, entity: ClientEntity, configs: Mapping[str, str], made: set[str]) -> list[Operation]:
    path, value = entity_path(entity), layout.config_value(configs)
    node = image.client_entities.get(entity)
    if node is not None:
        return [Set(path, value, node.version)]
    # The parent of an earlier entity of this commit.
    if path in made:
        return []
    made.add(path)
    return [Create(path, value)]
