"""A leader that is killed under a share group: its successor delivers what was not acknowledged, and nothing else."""

from __future__ import annotations

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Producer
from oncelog.testing import Cluster
from tests.interop.share.servers import values
from tests.peers.clients.share_member import ShareMember
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration]


def test_a_new_leader_knows_what_was_acknowledged(kind: str) -> None:
    with Cluster(3) as cluster:
        with Client(cluster.bootstrap_servers) as client, Producer(client) as producer:
            create_topic(client, NewTopic("jobs"))
            alter_configs(client, ResourceType.GROUP, "g", change={"share.auto.offset.reset": "earliest"})
            for number in range(10):
                producer.send("jobs", b"%d" % number)
        with ShareMember(kind, cluster.bootstrap_servers, "g", "jobs") as member:
            accepted = member.take(10)[:5]
            member.acknowledge("accept", *accepted)
            assert set(member.commit().values()) == {None}
            member.kill()
        leader = cluster.leader("jobs")
        assert leader is not None
        cluster.kill(leader)
        with ShareMember(kind, cluster.bootstrap_servers, "g", "jobs") as member:
            seen: set[str] = set()

            def is_all() -> bool:
                records = member.poll()
                member.acknowledge("accept", *records)
                seen.update(values(records))
                return len(seen) == 5

            wait_until(is_all, lambda: f"the other five records, not {seen}")
            assert not seen & set(values(accepted))
