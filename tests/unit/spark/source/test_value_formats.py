"""Schemas that Spark cannot read, by what it says of them."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from oncelog.spark.source.value_formats import check_now, schema_problem

_NO_STRUCT = (
    'Cannot resolve "from_json(CAST(value AS STRING))" due to data type mismatch: Input schema "BIGINT" must be a '
    "struct, an array, a map or a variant"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'BIGINTT': extra input 'BIGINTT'. SQLSTATE: 42601",
            "Syntax error at or near 'BIGINTT': extra input 'BIGINTT'",
        ),
        (
            "[PARSE_EMPTY_STATEMENT] Syntax error, unexpected empty statement. SQLSTATE: 42617\n\nJVM stacktrace:",
            "Syntax error, unexpected empty statement",
        ),
        ('[UNSUPPORTED_DATATYPE] Unsupported data type "FOO". SQLSTATE: 0A000', 'Unsupported data type "FOO"'),
        (
            f"[DATATYPE_MISMATCH.INVALID_JSON_SCHEMA] {_NO_STRUCT}. SQLSTATE: 42K09;\n'Project [from_json(LongType)]",
            _NO_STRUCT,
        ),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. SQLSTATE: 42703", None),
        ("[AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE] Cannot call from_avro.", None),
    ],
)
def test_what_spark_says_of_a_schema_in_one_line(text: str, problem: str | None) -> None:
    assert schema_problem(text) == problem


class Frame:
    """Of a server that refuses to analyse it."""

    def __init__(self, error: PySparkException) -> None:
        self._error = error

    @property
    def schema(self) -> object:
        raise self._error


@pytest.mark.parametrize("kind", [PySparkException, AnalysisException])  # of the client, and of the server
def test_definitions_of_a_pipeline_are_not_analysed_and_other_frames_are(kind: type[PySparkException]) -> None:
    refused = "[ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION] Operations that trigger DataFrame analysis are not allowed"
    check_now(Frame(kind(refused)))  # type: ignore[arg-type]
    with pytest.raises(kind, match="PARSE_SYNTAX_ERROR"):
        check_now(Frame(kind("[PARSE_SYNTAX_ERROR] Syntax error at or near 'BIGINTT'.")))  # type: ignore[arg-type]
