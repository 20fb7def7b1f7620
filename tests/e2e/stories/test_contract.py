"""The judge itself: that it would notice."""

import copy
import json

import pytest

from harness.contract import Contract, ContractBroken

DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {
        "/v1/things/{id}": {
            "get": {
                "operationId": "GetThing",
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
                    "404": {"content": {"application/json": {"schema": {"type": "object"}}}},
                },
            }
        },
        "/v1/things/special": {
            "get": {"operationId": "Special", "responses": {"200": {"content": {"text/plain": {}}}}}
        },
    },
    "components": {
        "schemas": {
            "Thing": {"type": "object", "required": ["size"], "properties": {"size": {"$ref": "#/components/schemas/Size"}}},
            "Size": {"type": "integer"},
        }
    },
}


def judge(path, status, media, body):
    contract = Contract(copy.deepcopy(DOCUMENT))
    contract.check("GET", path, status, media, body)
    return contract.seen


def test_what_is_allowed_is_allowed():
    assert judge("/v1/things/7?x=y", 200, "application/json", b'{"size": 3}') == {("GetThing", 200)}
    assert judge("/v1/things/special", 200, "text/plain; charset=utf-8", b"x") == {("Special", 200)}
    assert judge("/v1/elsewhere", 404, "application/json", b"{}") == set()


@pytest.mark.parametrize(
    "path, status, media, value",
    [
        ("/v1/things/7", 200, "application/json", {"size": "3"}),
        ("/v1/things/7", 200, "application/json", {}),
        ("/v1/things/7", 201, "application/json", {"size": 3}),
        ("/v1/things/7", 200, "text/plain", {"size": 3}),
        ("/v1/elsewhere", 200, "application/json", {}),
    ],
)
def test_what_is_not_is_noticed(path, status, media, value):
    with pytest.raises(ContractBroken):
        judge(path, status, media, json.dumps(value).encode())
