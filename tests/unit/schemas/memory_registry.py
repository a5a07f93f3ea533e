"""A registry in memory behind the routes that serializers ask: enough to exchange values with them, without rules."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5


class MemoryRegistry:
    """Answers of a `FakeRegistry`. Equal texts have one id."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}

    def __call__(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(target)
        path = [unquote(part) for part in parts.path.strip("/").split("/")]
        match method, *path:
            case "POST", "subjects", subject, "versions":
                return 200, self._described(subject, self._register(subject, body))
            case "POST", "subjects", subject:
                number = self._number(body)
                if number is None or number not in self.subjects.get(subject, ()):
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, self._described(subject, number)
            case "GET", "subjects", subject, "versions", version:
                versions = self.subjects.get(subject)
                if versions is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                return 200, self._described(subject, versions[-1 if version == "latest" else int(version) - 1])
            case "GET", "subjects":
                return 200, sorted(self.subjects)
            case "GET", "schemas", "ids", number, "versions":
                places = [
                    {"subject": subject, "version": versions.index(int(number)) + 1}
                    for subject, versions in self.subjects.items()
                    if int(number) in versions
                ]
                return 200, places
            case "GET", "schemas", "ids", number if int(number) <= len(self.documents):
                return 200, self.documents[int(number) - 1]
            case "GET", "schemas", "guids", guid:
                for document in self.documents:
                    if document["guid"] == guid:
                        return 200, document
        assert parse_qs(parts.query) is not None
        return 404, {"error_code": 40403, "message": f"Schema not found: {target}"}

    def _number(self, body: Any) -> int | None:
        key = _key(body)
        return next((index for index, document in enumerate(self.documents, 1) if _key(document) == key), None)

    def _register(self, subject: str, body: Any) -> int:
        number = self._number(body)
        if number is None:
            guid = str(uuid5(NAMESPACE_URL, json.dumps(_key(body))))
            self.documents.append({"schemaType": "AVRO", **body, "guid": guid})
            number = len(self.documents)
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def _described(self, subject: str, number: int) -> dict[str, Any]:
        version = self.subjects[subject].index(number) + 1
        return {"subject": subject, "version": version, "id": number, **self.documents[number - 1]}


def _key(body: Any) -> list[Any]:
    return [body["schema"], body.get("schemaType") or "AVRO", body.get("references") or []]
