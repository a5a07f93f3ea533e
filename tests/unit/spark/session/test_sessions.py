"""Sessions of Spark Connect as jobs use them: settings, queries of batches, what a server lacks."""

from __future__ import annotations

import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.spark.session import sessions
from oncelog.spark.session.errors import ServerLacksOncelog, SparkLostWorker, SparkSourceError, SparkWorkerLate
from oncelog.spark.session.sessions import (
    REDACTED_TEXTS,
    SECRET_OPTIONS,
    JobSession,
    QueryRun,
    hide_secrets,
    is_connect,
    known_error,
    missing_package_error,
    query_of,
)

WORKER = "SPARK_CONNECT_LOCAL_URL"


class Conf:
    """Settings of a session."""

    def __init__(self, **values: str) -> None:
        self.values = {name.replace("_", "."): value for name, value in values.items()}
        self.refused: str | None = None

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802 - PySpark's name
        return dict(self.values)

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        if name == self.refused:
            raise RuntimeError("CONFIG_NOT_AVAILABLE")
        self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name, None)


class Session:
    """Stands for a session of Connect."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, conf: Conf | None = None, *queries: tuple[str, str]) -> None:
        self.conf = conf or Conf()
        self.streams = SimpleNamespace(active=[SimpleNamespace(id=query, runId=run) for query, run in queries])


class Frame:
    """Stands for a frame of Connect."""

    __module__ = "pyspark.sql.connect.dataframe"

    def __init__(self, session: Session) -> None:
        self.sparkSession = session


def job(session: Session, **settings: str) -> JobSession:
    return JobSession(session, {name.replace("_", "."): value for name, value in settings.items()})  # type: ignore[arg-type]


def test_settings_hold_inside_and_are_set_back_or_unset() -> None:
    conf = Conf(time_zone="Asia/Tokyo", same="1")
    ours = job(Session(conf), time_zone="UTC", same="1", other="2")
    assert conf.values == {"time.zone": "Asia/Tokyo", "same": "1"}
    with ours.settings(), ours.settings():
        assert conf.values == {"time.zone": "UTC", "same": "1", "other": "2"}
    assert conf.values == {"time.zone": "Asia/Tokyo", "same": "1"}


def test_settings_are_set_back_when_one_of_them_is_refused() -> None:
    conf = Conf(first="a", second="b")
    conf.refused = "second"
    ours = job(Session(conf), first="x", second="y")
    with pytest.raises(RuntimeError, match="CONFIG_NOT_AVAILABLE"), ours.settings():
        pass
    assert conf.values == {"first": "a", "second": "b"}


def frame(*queries: tuple[str, str]) -> Any:
    return Frame(Session(None, *queries))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is one in which a server runs a query's function."""
    monkeypatch.setenv(WORKER, "sc://localhost")
    sessions._process_query.cache_clear()


@pytest.mark.usefixtures("worker")
def test_the_only_query_of_a_session_is_the_batchs() -> None:
    assert query_of(frame(("q", "run"))) == QueryRun("q", "run")
    assert query_of(frame(("q", "run"))) == QueryRun("q", "run")
    with pytest.raises(SparkSourceError, match="query q has ended"):
        query_of(frame(("another", "run")))


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("queries", [(), (("a", "1"), ("b", "2"))])
def test_a_batch_that_could_be_of_several_queries_is_refused(queries: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(SparkSourceError, match=f"has {len(queries)} streaming queries.*query='…'"):
        query_of(frame(*queries))


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_batch_in_a_clone_of_its_session_is_of_the_query_that_the_session_started(in_thread: bool) -> None:
    def main() -> QueryRun | None:  # as PySpark's program for `foreachBatch` has it from 4.3 on
        spark_connect_session = Session(None, ("q", "run"))
        assert spark_connect_session.streams.active
        if not in_thread:
            return query_function()
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(query_function).result()

    def query_function() -> QueryRun | None:
        spark_connect_session = Session(None, ("of-another", "run"))
        assert spark_connect_session.streams.active
        return query_of(frame())

    assert main() == QueryRun("q", "run")


def test_a_client_is_in_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKER, raising=False)
    assert query_of(frame(("q", "run"))) is None


def test_sessions_are_known_by_where_they_come_from() -> None:
    assert is_connect(Session())  # type: ignore[arg-type]
    assert not is_connect(object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("…\nModuleNotFoundError: No module named 'oncelog'\n SQLSTATE: 38000", "oncelog"),
        ("ModuleNotFoundError: No module named 'crc32c'", "crc32c"),
        ("ModuleNotFoundError: No module named 'deltalake'", "deltalake"),
        ("ModuleNotFoundError: No module named 'pyiceberg.io'", "pyiceberg"),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: oncelog. Make sure", "oncelog"),
    ],
)
def test_what_a_server_lacks_is_read_from_its_error(text: str, module: str) -> None:
    error = missing_package_error(RuntimeError(text))
    assert error is not None
    assert (error.module, "docs/deploy-spark.md" in str(error)) == (module, True)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ServerLacksOncelog)
    assert str(again) == str(error)


def test_a_defect_of_sparks_is_told_with_the_way_around() -> None:
    """As Spark 4.0.5 says it."""
    error = RuntimeError("java.util.NoSuchElementException: key not found: PythonWorker(java.nio.channels.Soc…)")
    result = known_error(error)
    assert isinstance(result, SparkLostWorker)
    assert "spark.python.worker.reuse=false" in str(result)
    assert str(pickle.loads(pickle.dumps(result))) == str(result)
    assert isinstance(known_error(RuntimeError("No module named 'oncelog'")), ServerLacksOncelog)
    assert known_error(RuntimeError("key not found: mine")) is None


def test_a_source_whose_process_was_late_is_to_be_started_again() -> None:
    error = known_error(RuntimeError("[STREAM_FAILED] Query terminated: Python worker failed to connect back. XXKST"))
    assert isinstance(error, SparkWorkerLate)
    assert str(error).endswith("run it again")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("text", ["No module named 'mine'", "Failed to find the data source: kafka", "oncelogged"])
def test_other_errors_are_not_taken_for_it(text: str) -> None:
    assert missing_package_error(RuntimeError(text)) is None


def test_a_server_hides_the_secrets_of_a_query_s_message() -> None:
    def option(name: str, value: str) -> str:
        return f'options {{\n  key: "{name}"\n  value: "{value}"\n}}\n'

    secret = 'hush \\"4711\\\\ '
    hidden = (
        "valueSchema.registry.url",
        "kafka.sasl.jaas.config",
        "decodeRegistrySecret",
        "kafka.ssl.Key.Password",
        "kafka.ssl.keystore.key",
    )
    text = "".join(option(name, secret) for name in hidden) + option("key.format", "t") + option("topic", "passwords")
    shown = re.sub(SECRET_OPTIONS, "*", text)
    assert shown == "options {\n  *\n}\n" * len(hidden) + option("key.format", "t") + option("topic", "passwords")


def test_a_server_s_own_pattern_stays() -> None:
    for present, expected in ({}, SECRET_OPTIONS), ({REDACTED_TEXTS: "mine"}, f"mine|{SECRET_OPTIONS}"):
        conf: Any = Conf()
        conf.values = dict(present)
        session: Any = SimpleNamespace(conf=conf)
        for _ in range(2):
            hide_secrets(session)
            assert conf.values == {REDACTED_TEXTS: expected}
