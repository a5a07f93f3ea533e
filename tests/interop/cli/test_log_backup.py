"""``oncelog log backup``, ``restore`` and ``verify`` of a backup: against the in-process broker and stopped ones."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.cli.log.backup import making
from oncelog.cli.log.backup.copying import Copier
from oncelog.cli.log.backup.manifest import MANIFEST, Manifest
from oncelog.cli.log.backup.noted_files import BrokerFiles
from oncelog.cli.log.backup.tree_file import TreeSnapshot
from oncelog.client.blocking import Client, Producer
from oncelog.runtime.data import broker_hold
from oncelog.runtime.data.broker_hold import BrokerHold, NotHeld
from oncelog.runtime.data.data_directory import TREE_FILE
from oncelog.runtime.data.disk_files import LOCK_FILE
from oncelog.testing import Broker
from tests.interop.cli.conftest import Ran, Run

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data") as broker:
        with Client(broker.bootstrap_servers) as client:
            create_topic(client, NewTopic("t", 1))
        yield broker


@pytest.fixture
def run(broker: Broker, run_at: Callable[[str], Run]) -> Run:
    return run_at(broker.bootstrap_servers)


def produce(broker: Broker, *values: bytes) -> None:
    with Client(broker.bootstrap_servers) as client, Producer(client) as producer:
        for value in values:
            producer.send("t", value, partition=0)


def test_a_running_broker_is_restored_as_it_was(broker: Broker, run: Run, tmp_path: Path) -> None:
    produce(broker, b"before")
    first = run("log", "backup", str(broker.data_dir), "--to", str(tmp_path / "b1"), "--json")
    made = json.loads(first.out)
    assert (made["brokers"], made["format"], made["missing"], made["shared_files"]) == ([1], 1, [], 0)
    produce(broker, b"after")
    second = run("log", "backup", str(broker.data_dir), "--to", str(tmp_path / "b2"), "--since", str(tmp_path / "b1"))
    assert "shared with" in second.out
    assert run("log", "verify", str(tmp_path / "b1")).code == 0
    for name, expected in (("b1", ["before"]), ("b2", ["before", "after"])):
        restored = run("log", "restore", str(tmp_path / name), "--to", str(tmp_path / f"from-{name}"))
        assert f"oncelog serve --data-dir {tmp_path / f'from-{name}'}" in restored.out
        with Broker(data_dir=tmp_path / f"from-{name}") as again:
            values = run("consume", "t", "--from", "beginning", "--exit", "-b", again.bootstrap_servers).out.split()
        assert values == expected


def test_a_stopped_broker_stays_clean(broker: Broker, run: Run, tmp_path: Path) -> None:
    produce(broker, b"x")
    broker.stop()
    assert run("log", "backup", str(broker.data_dir), "--to", str(tmp_path / "b")).code == 0
    assert run("log", "restore", str(tmp_path / "b"), "--to", str(tmp_path / "r")).code == 0
    assert (tmp_path / "r" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "r" / LOCK_FILE).exists()


@pytest.fixture
def backup(broker: Broker, run: Run, tmp_path: Path) -> Path:
    """A backup of one record."""
    produce(broker, b"x" * 1_000)
    assert run("log", "backup", str(broker.data_dir), "--to", str(tmp_path / "b")).code == 0
    return tmp_path / "b"


def refusal(ran: Ran) -> str:
    assert ran.code == 1
    assert ran.err.startswith("oncelog: ")
    return ran.err


def test_damage_is_found_before_and_during_a_restore(backup: Path, run: Run, tmp_path: Path) -> None:
    log = next(backup.glob("1/t-0/*.log"))
    content = log.read_bytes()
    log.write_bytes(content[:-1] + b"?")
    verified = run("log", "verify", str(backup))
    assert (verified.code, "checksum is not that of the manifest" in verified.out) == (1, True)
    assert "checksum" in refusal(run("log", "restore", str(backup), "--to", str(tmp_path / "r")))
    log.write_bytes(content[:-1])
    problems = [json.loads(line) for line in run("log", "verify", str(backup), "--json").out.splitlines()]
    assert f"has {len(content) - 1:,} bytes, the manifest says {len(content):,}" in problems[0]["problem"]
    log.unlink()
    assert "no such file" in run("log", "verify", str(backup)).out
    assert "no such file" in refusal(run("log", "restore", str(backup), "--to", str(tmp_path / "r")))
    assert not list(tmp_path.glob("r*"))


def test_manifests_that_are_not_whole_unknown_or_hostile_are_refused(backup: Path, run: Run, tmp_path: Path) -> None:
    manifest = backup / MANIFEST
    content = manifest.read_bytes()

    def restored(text: bytes) -> str:
        manifest.write_bytes(text)
        return refusal(run("log", "restore", str(backup), "--to", str(tmp_path / "r")))

    lines = content.splitlines(keepends=True)
    for part in (b"", lines[0], b"".join(lines[:-1]), content[:-20], content.replace(b'"size": ', b'"size": 1', 1)):
        assert "is damaged" in restored(part), part
    assert "is a backup of format 9, and this version of oncelog reads format 1" in restored(
        content.replace(b'"format": 1', b'"format": 9')
    )
    manifest.unlink()
    assert "is no whole backup" in refusal(run("log", "restore", str(backup), "--to", str(tmp_path / "r")))
    manifest.write_bytes(content)
    with pytest.raises(making.BackupError, match="no path within a backup"):
        Manifest(backup)._check_path("1/../../etc/passwd")
    header = json.loads(lines[0])
    for hostile, reason in (
        ({"tree": str(tmp_path / "data" / TREE_FILE)}, "is no path within a backup"),
        ({"tree": 1}, "is no path within a backup"),
        ({"brokers": ["1"]}, "its header cannot be read"),
        ({"brokers": 1}, "its header cannot be read"),
    ):
        body = json.dumps(header | hostile).encode() + b"\n" + b"".join(lines[1:-1])
        last = json.loads(lines[-1]) | {"sha256": hashlib.sha256(body).hexdigest()}
        assert reason in restored(body + json.dumps(last).encode() + b"\n")
    assert not list(tmp_path.glob("r*"))


def test_places_that_are_taken_are_refused(backup: Path, broker: Broker, run: Run, tmp_path: Path) -> None:
    data = str(broker.data_dir)
    assert "not an empty directory" in refusal(run("log", "backup", data, "--to", str(backup)))
    assert "not an empty directory" in refusal(run("log", "restore", str(backup), "--to", data))
    (tmp_path / "c.incomplete").mkdir()
    assert "interrupted run" in refusal(run("log", "backup", data, "--to", str(tmp_path / "c")))
    (tmp_path / "empty").mkdir()
    assert run("log", "restore", str(backup), "--to", str(tmp_path / "empty")).code == 0
    assert "no meta.properties" in refusal(run("log", "backup", str(tmp_path / "c"), "--to", str(tmp_path / "d")))


def test_brokers_of_two_clusters_and_a_foreign_tree_are_refused(
    backup: Path, broker: Broker, run: Run, tmp_path: Path
) -> None:
    with Broker(data_dir=tmp_path / "other") as other:
        assert "several clusters" in refusal(
            run("log", "backup", str(broker.data_dir), str(other.data_dir), "--to", str(tmp_path / "c"))
        )
    shutil.copy(tmp_path / "other" / "coordination.db", tmp_path / "tree.db")
    run("log", "restore", str(backup), "--to", str(tmp_path / "r"))
    (tmp_path / "r" / "coordination.db").unlink()
    assert "name its file" in refusal(run("log", "backup", str(tmp_path / "r"), "--to", str(tmp_path / "c")))
    foreign = run(
        "log", "backup", str(tmp_path / "r"), "--to", str(tmp_path / "c"), "--tree", str(tmp_path / "tree.db")
    )
    assert "belongs to cluster" in refusal(foreign)


def test_files_removed_after_the_note_are_copied(
    broker: Broker, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention removes a segment, compaction replaces one, while the copy runs."""
    produce(broker, b"kept in the backup")
    copy = Copier.copy

    def copy_later(*arguments: object) -> None:
        for path in broker.data_dir.glob("t-0/*"):
            path.unlink()
        copy(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(Copier, "copy", copy_later)
    assert run("log", "backup", str(broker.data_dir), "--to", str(tmp_path / "b")).code == 0
    assert b"kept in the backup" in next((tmp_path / "b").glob("1/t-0/*.log")).read_bytes()


def test_files_beyond_the_limit_of_descriptors_are_copied_unless_they_are_gone(broker: Broker, tmp_path: Path) -> None:
    produce(broker, b"x")
    files = BrokerFiles(broker.data_dir, 1)
    try:
        files.note()
        assert sum(note.descriptor >= 0 for note in files.notes.values()) == 1
        note = files.notes["t-0/00000000000000000000.log"]
        log = broker.data_dir / note.path
        for name in (log, log.with_name(log.name + ".deleted")):
            with files.opened(note) as descriptor:
                assert os.fstat(descriptor).st_size == note.size
            name.rename(log.with_name(log.name + (".deleted" if name == log else ".gone")))
        with (
            pytest.raises(making.BackupError, match="was removed or replaced before it was copied"),
            files.opened(note),
        ):
            pass
    finally:
        files.close()


def test_a_log_that_is_cut_while_it_is_copied_is_noticed(
    broker: Broker, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, b"x")
    copy = Copier.copy

    def cut_then_copy(*arguments: object) -> None:
        copy(*arguments)  # type: ignore[arg-type]  # as they came
        broker.on_loops(lambda server: setattr(server.node.logs, "truncations", 1))

    monkeypatch.setattr(Copier, "copy", cut_then_copy)
    assert "was cut while it was copied" in refusal(
        run("log", "backup", str(broker.data_dir), "--to", str(tmp_path / "b"))
    )
    assert not list(tmp_path.glob("b*"))


def test_a_broker_is_released_when_the_command_is_late_or_dies(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_hold, "HOLD_S", 0.05)
    lock_file = broker.data_dir / LOCK_FILE
    late = BrokerHold(lock_file)
    late.begin(60.0)
    produce(broker, b"answered after the hold")
    late.release()
    assert not late.was_held()
    late.begin(60.0)
    late.release()
    assert late.was_held()
    late.close()
    monkeypatch.setattr(broker_hold, "HOLD_S", 60.0)
    dying = BrokerHold(lock_file)
    dying.begin(60.0)
    answered = threading.Event()
    waiting = threading.Thread(target=lambda: (produce(broker, b"x"), answered.set()))
    waiting.start()
    assert not answered.wait(0.2)
    dying.close()
    waiting.join()
    assert answered.is_set()


def test_late_holds_are_repeated_and_then_refused(
    broker: Broker, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_hold, "HOLD_S", 0.01)
    release = BrokerHold.release

    def release_late(hold: BrokerHold) -> None:
        produce(broker, b"answered, so the hold is over")
        release(hold)

    monkeypatch.setattr(BrokerHold, "release", release_late)
    assert "cannot be held for the" in refusal(run("log", "backup", str(broker.data_dir), "--to", str(tmp_path / "b")))


def test_no_broker_is_held_for_long_because_another_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_ALL_HELD_S", 0.1)
    monkeypatch.setattr(broker_hold, "HOLD_S", 60.0)
    is_busy, released = threading.Event(), threading.Event()

    def stand_still(_server: object) -> None:
        is_busy.set()
        released.wait(60)

    with Broker(data_dir=tmp_path / "1") as other, Broker(data_dir=tmp_path / "2") as busy:
        files = [BrokerFiles(broker.data_dir, 100) for broker in (other, busy)]
        tree = TreeSnapshot(other.data_dir / TREE_FILE)
        try:
            waiting = threading.Thread(target=busy.on_loops, args=(stand_still,))
            waiting.start()
            assert is_busy.wait(60)
            assert not making._note_held(files, tree)
            with Client(other.bootstrap_servers) as client:
                create_topic(client, NewTopic("answered", 1))  # it is not held any more
            released.set()
            waiting.join()
            with Client(busy.bootstrap_servers) as client:
                create_topic(client, NewTopic("answered", 1))  # the late request holds nobody
            monkeypatch.setattr(making, "_ALL_HELD_S", 60.0)
            assert making._note_held(files, tree)
        finally:
            released.set()
            tree.close()
            for broker in files:
                broker.close()


def test_only_known_requests_of_the_same_user_are_answered(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for request in (b"hold 2\n", b"x" * 10_000):
        hold = BrokerHold(broker.data_dir / LOCK_FILE)
        with pytest.raises(NotHeld, match=r"ended the connection|does not answer"):
            hold._answer(request)
        hold.close()
    monkeypatch.setattr(broker_hold, "_peer_user", lambda connection: os.geteuid() + 1)
    with pytest.raises(NotHeld, match="another user"):
        BrokerHold(broker.data_dir / LOCK_FILE)


def test_a_name_that_is_taken_costs_only_backups_while_it_runs(
    broker: Broker, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = broker.data_dir
    broker.stop()
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(broker_hold._address(data / LOCK_FILE))
        with Broker(data_dir=data) as again:
            assert "cannot be backed up while it runs" in caplog.text
            produce(again, b"x")
            refused = refusal(run("log", "backup", str(data), "--to", str(tmp_path / "b")))
            assert f"a broker runs on {data}, and it does not answer here" in refused


def test_notes_leave_out_what_is_of_the_process(broker: Broker) -> None:
    produce(broker, b"x")
    log = broker.data_dir / "t-0"
    for name in ("00000000000000000009.log.deleted", "00000000000000000009.log.cleaned", "leader-epoch.tmp"):
        (log / name).touch()
    for directory in ("lost+found", "t-0.0123456789abcdef0123456789abcdef-delete"):
        (broker.data_dir / directory).mkdir()
        (broker.data_dir / directory / "file").touch()
    files = BrokerFiles(broker.data_dir, 100)
    try:
        files.note()
        names = {os.path.basename(path) for path in files.notes}
        assert not any(name.endswith((".deleted", ".cleaned", ".tmp")) for name in names)
        assert names.isdisjoint({"file", LOCK_FILE, "coordination.db"})
        (log / "00000000000000000008.log.swap").touch()
        files.note()
        assert "t-0/00000000000000000009.log.cleaned" in files.notes
    finally:
        files.close()
