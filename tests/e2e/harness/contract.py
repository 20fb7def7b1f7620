"""The OpenAPI document as a judge: every answer that a story sees is held against it."""

import json
import re
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"
METHODS = {"get", "put", "post", "patch", "delete"}


class ContractBroken(AssertionError):
    """The service answered something that its own document does not allow."""


class Contract:
    """Operations of the document, and which of them were seen with which status."""

    def __init__(self, document=None):
        self.document = document or json.loads(DOCUMENT.read_text())
        resource = Resource(contents=self.document, specification=DRAFT202012)
        self._registry = Registry().with_resource("contract", resource)
        self._operations = []
        for path, item in self.document["paths"].items():
            pattern = re.compile("".join(_pattern(part) for part in re.split(r"(\{[^}]+\})", path)) + "$")
            for method in METHODS & item.keys():
                self._operations.append((method.upper(), path, pattern, item[method]))
        # A path without placeholders wins over one with them: /by-ip/{ip} is not /{id}.
        self._operations.sort(key=lambda operation: operation[1].count("{"))
        self._validators = {}
        self.seen = set()

    def operations(self):
        """Every operation's name."""
        return {operation["operationId"] for _, _, _, operation in self._operations}

    def check(self, method, path, status, content_type, body):
        """Judges one answer. `body` is the whole body, or `None` when it was streamed away."""
        found = self._find(method, path)
        if found is None:
            if status not in (404, 405):
                raise ContractBroken(f"{method} {path} answered {status} but is not in the document")
            return
        template, operation = found
        where = f"{method} {template} -> {status}"
        responses = operation["responses"]
        response = responses.get(str(status)) or responses.get(f"{status // 100}XX") or responses.get("default")
        if response is None:
            raise ContractBroken(f"{where}: the document knows only {sorted(responses)}")
        response = self._follow(response)
        self.seen.add((operation["operationId"], status))
        content = response.get("content", {})
        media = (content_type or "").split(";")[0].strip()
        by_media = {name.split(";")[0].strip(): entry for name, entry in content.items()}
        if not by_media and not body:
            return
        if media not in by_media:
            raise ContractBroken(f"{where}: content type {content_type!r}, the document has {sorted(content)}")
        if body is None:
            return
        schema = by_media[media].get("schema")
        if schema is None:
            return
        if media == "application/json":
            self._validate(where, schema, json.loads(body))
        elif media == "application/x-ndjson":
            for line in body.splitlines():
                self._validate(where, schema, json.loads(line))

    def _find(self, method, path):
        path = path.split("?")[0]
        for candidate, template, pattern, operation in self._operations:
            if candidate == method and pattern.match(path):
                return template, operation
        return None

    def _follow(self, item):
        if "$ref" not in item:
            return item
        found = self.document
        for part in item["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return found

    def _validate(self, where, schema, value):
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            local = json.loads(key.replace('"#/', '"contract#/'))
            self._validators[key] = Draft202012Validator(
                local, registry=self._registry, format_checker=Draft202012Validator.FORMAT_CHECKER
            )
        errors = [f"{error.json_path}: {error.message}" for error in self._validators[key].iter_errors(value)]
        if errors:
            raise ContractBroken(f"{where}: " + "; ".join(errors[:3]) + f"\n{json.dumps(value)[:2000]}")


def _pattern(part):
    return "[^/]+" if part.startswith("{") else re.escape(part)
