//! The OpenAPI document, made from the table.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::{Access, Body, ErrorKind, OPERATIONS, Operation, OperationId, Parameter};

/// The whole document (OpenAPI 3.1).
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let item = paths.entry(operation.path).or_insert_with(|| json!({}));
        item[operation.method.to_lowercase()] = describe(operation, &mut generator);
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Failure".to_owned(), failure());
    schemas.sort_keys();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hutch",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sandboxes with a Linux kernel of their own. The calls that the CreateOS sandbox interface \
                has are spoken as its clients speak them; what is marked \"Addition\" is Hutch's own.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "apiKey", "in": "header", "name": "X-Api-Key" } },
            "schemas": schemas,
        },
    })
}

fn describe(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = placeholders(operation.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(operation.query.iter().map(parameter));
    parameters.extend(headers(operation));
    let mut described = json!({
        "operationId": operation.id.as_str(),
        "summary": operation.summary,
        "responses": { "200": success(operation.response, generator), "default": {
            "description": "Refused or failed.",
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Failure" } } },
        } },
    });
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    match operation.id {
        OperationId::ReadFile => described["responses"]["206"] = success(operation.response, generator),
        // The one refusal that carries the data of a success.
        OperationId::Ready => {
            described["responses"]["503"] = answer("Not ready.", "fail", operation.response, generator);
        }
        OperationId::PauseSandbox | OperationId::ResumeSandbox => {
            let begun = "Begun; the header X-Poll-After says after how many seconds to look again.";
            described["responses"]["202"] = answer(begun, "success", operation.response, generator);
        }
        _ => {}
    }
    if operation.access == Access::Open {
        described["security"] = json!([]);
    }
    match operation.request {
        Body::Empty => {}
        Body::Json(schema) | Body::JsonOrLines(schema, _) => {
            let content = json!({ "application/json": { "schema": schema(generator) } });
            // Nothing means what `{}` means where no field is needed.
            let needed = !matches!(operation.id, OperationId::ForkSandbox | OperationId::CreateSnapshot);
            described["requestBody"] = json!({ "required": needed, "content": content });
        }
        Body::Bytes(media_type) => {
            described["requestBody"] = json!({ "required": true, "content": { media_type: {} } });
        }
    }
    described
}

fn success(body: Body, generator: &mut SchemaGenerator) -> Value {
    answer("Done.", "success", body, generator)
}

/// An answer whose JSON is in an envelope of this status word.
fn answer(description: &str, word: &str, body: Body, generator: &mut SchemaGenerator) -> Value {
    let enveloped = |data: Value| {
        json!({ "schema": {
            "type": "object",
            "required": ["status", "data"],
            "properties": { "status": { "const": word }, "data": data },
        } })
    };
    let content = match body {
        Body::Empty => return json!({ "description": description }),
        Body::Json(schema) => json!({ "application/json": enveloped(schema(generator).into()) }),
        Body::JsonOrLines(schema, line) => {
            let whole = enveloped(schema(generator).into());
            json!({ "application/json": whole, "application/x-ndjson": { "schema": line(generator) } })
        }
        Body::Bytes(media_type) => json!({ media_type: {} }),
    };
    json!({ "description": description, "content": content })
}

fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn parameter(parameter: &Parameter) -> Value {
    let plain = json!({ "type": parameter.kind });
    let schema = if parameter.repeated { json!({ "type": "array", "items": plain }) } else { plain };
    json!({
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.description,
        "schema": schema,
    })
}

/// The headers that mean something to single operations.
fn headers(operation: &Operation) -> Option<Value> {
    use crate::OperationId::{CreateSandbox, ReadFile};
    let (name, description) = match operation.id {
        CreateSandbox => ("Idempotency-Key", "The same as the body's `idempotency_key`."),
        ReadFile => ("Range", "A part of the file, as `bytes=first-last`; the answer is then 206."),
        _ => return None,
    };
    Some(json!({ "name": name, "in": "header", "description": description, "schema": { "type": "string" } }))
}

fn failure() -> Value {
    let codes: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    let table: Vec<String> = ErrorKind::ALL
        .iter()
        .map(|kind| format!("| {} | `{}` | {} |", kind.status(), kind.code(), kind.summary()))
        .collect();
    json!({
        "description": format!(
            "A refusal (`fail`, with text for each field of the request that is wrong) or a fault (`error`).\n\n\
            | status | code | when |\n|---|---|---|\n{}", table.join("\n")),
        "type": "object",
        "required": ["status", "data"],
        "properties": {
            "status": { "enum": ["fail", "error"] },
            "message": { "type": "string", "description": "With `error`: what happened." },
            "code": { "type": "integer", "description": "With `error`: the status." },
            "data": {
                "type": "object",
                "required": ["code"],
                "properties": {
                    "code": { "enum": codes },
                    "message": { "type": "string", "description": "With `fail`: what is wrong." },
                },
                "additionalProperties": { "type": "string" },
            },
        },
    })
}
