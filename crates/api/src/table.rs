//! Every operation, declared once. Routes, the OpenAPI document, the client and the list of what needs a key come from
//! this table.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::types as t;

/// One operation over HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Which one.
    pub id: OperationId,
    /// The HTTP method.
    pub method: &'static str,
    /// The path, with `{placeholders}`.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The parameters in the query.
    pub query: &'static [Parameter],
    /// What is sent.
    pub request: Body,
    /// What is answered on success.
    pub response: Body,
}

/// Who may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody who reaches the port.
    Open,
    /// The holder of an API key.
    Key,
}

/// A parameter in the query.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub description: &'static str,
    /// Whether it must be there.
    pub required: bool,
    /// The type that OpenAPI names for it.
    pub kind: &'static str,
    /// Whether it may come more than once.
    pub repeated: bool,
}

/// A body: nothing, JSON of a schema, or bytes.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// None.
    Empty,
    /// JSON; an answer's is inside of the envelope's `data`.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// JSON in the envelope, or with `stream=true` one JSON object a line.
    JsonOrLines(fn(&mut SchemaGenerator) -> Schema, fn(&mut SchemaGenerator) -> Schema),
    /// Bytes of this media type.
    Bytes(&'static str),
}

const fn required(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, description, required: true, kind: "string", repeated: false }
}

const fn optional(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name, description, required: false, kind, repeated: false }
}

const LIMIT: Parameter = optional("limit", "integer", "How many items at most: 50 when absent, 500 at most.");
const OFFSET: Parameter = optional("offset", "integer", "How many items to leave out at the beginning.");
const PATH: Parameter = required("path", "An absolute path in the sandbox.");
const MODE: Parameter = optional("mode", "string", "Permission bits of a new file in octal; 644 when absent.");
const WAIT: Parameter =
    optional("wait", "boolean", "Whether to answer when it is done, with 200; without it at once, with 202.");
const FROM: Parameter = optional("from", "string", "The beginning, as RFC 3339 or a date; all there is when absent.");
const TO: Parameter = optional("to", "string", "The end, as RFC 3339 or a date; now when absent.");

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

macro_rules! operations {
    ($( $id:ident $method:ident $path:literal $access:ident $summary:literal
        [$($query:expr),*] $request:expr => $response:expr; )*) => {
        /// The operations by name; the name in the OpenAPI document is [`OperationId::as_str`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum OperationId { $( #[doc = $summary] $id, )* }

        impl OperationId {
            /// The name in the OpenAPI document.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$id => stringify!($id), )* }
            }

            /// This operation's row.
            pub fn operation(self) -> &'static Operation {
                &OPERATIONS[self as usize]
            }
        }

        /// Every operation there is.
        pub const OPERATIONS: &[Operation] = &[$( Operation {
            id: OperationId::$id,
            method: stringify!($method),
            path: $path,
            access: Access::$access,
            summary: $summary,
            query: &[$($query),*],
            request: $request,
            response: $response,
        }, )*];
    };
}

use Body::{Bytes, Empty, Json, JsonOrLines};

operations! {
    Health GET "/healthz" Open "Says that the service lives."
        [] Empty => Json(schema::<t::Health>);
    Ready GET "/readyz" Open "Says whether sandboxes can be created; 503 when not."
        [] Empty => Json(schema::<t::Readiness>);
    Metrics GET "/metrics" Key "Metrics in the text form of Prometheus."
        [] Empty => Bytes("text/plain; version=0.0.4; charset=utf-8");
    WhoAmI GET "/v1/whoami" Key "Who the key belongs to, and how many sandboxes there are."
        [] Empty => Json(schema::<t::WhoAmI>);
    ListShapes GET "/v1/shapes" Open "The sizes a sandbox can have."
        [LIMIT, OFFSET] Empty => Json(schema::<t::Page<t::ShapeView>>);
    ListRootfs GET "/v1/rootfs" Open "The root file systems a sandbox can have."
        [] Empty => Json(schema::<t::RootfsCatalogue>);
    ListHosts GET "/v1/hosts" Key "The machines that run sandboxes."
        [LIMIT, OFFSET] Empty => Json(schema::<t::Page<t::HostView>>);
    Doctor GET "/v1/doctor" Key "The prerequisites of this machine: what was found, what to do."
        [] Empty => Json(schema::<t::DoctorReport>);
    Audit GET "/v1/audit" Key "Everything on this machine that exists for a sandbox, with its owner."
        [] Empty => Json(schema::<t::AuditReport>);

    ListImages GET "/v1/images" Key "The images and how far each is on this machine."
        [LIMIT, OFFSET] Empty => Json(schema::<t::Page<t::ImageView>>);
    GetImage GET "/v1/images/{name}" Key "One image and how far it is."
        [] Empty => Json(schema::<t::ImageView>);
    BuildImage POST "/v1/images/{name}/build" Key "Begins to build an image unless it is ready; answers at once."
        [] Empty => Json(schema::<t::ImageView>);

    CreateSandbox POST "/v1/sandboxes" Key "Creates a sandbox; answers when it runs."
        [] Json(schema::<t::CreateSandbox>) => Json(schema::<t::CreatedSandbox>);
    ListSandboxes GET "/v1/sandboxes" Key "The account's sandboxes, newest first."
        [LIMIT, OFFSET,
         optional("status", "string", "Only those in this state; without it, all that have not ended."),
         Parameter { name: "label", description: "Only those with this label, `key=value`.", required: false,
                     kind: "string", repeated: true },
         optional("name", "string", "Only the one with this name.")]
        Empty => Json(schema::<t::Page<t::SandboxView>>);
    GetSandboxByIp GET "/v1/sandboxes/by-ip/{ip}" Key "The sandbox that has an address."
        [] Empty => Json(schema::<t::SandboxView>);
    GetSandbox GET "/v1/sandboxes/{id}" Key "One sandbox, by id or name."
        [] Empty => Json(schema::<t::SandboxView>);
    UpdateSandbox PATCH "/v1/sandboxes/{id}" Key "Changes a sandbox; what is absent stays."
        [] Json(schema::<t::UpdateSandbox>) => Json(schema::<t::SandboxView>);
    DestroySandbox DELETE "/v1/sandboxes/{id}" Key "Destroys a sandbox; repeating it is no error."
        [] Empty => Json(schema::<t::DestroyedSandbox>);

    PauseSandbox POST "/v1/sandboxes/{id}/pause" Key "Saves a sandbox's memory and frees what it holds."
        [WAIT] Empty => Json(schema::<t::SandboxView>);
    ResumeSandbox POST "/v1/sandboxes/{id}/resume" Key "Brings a paused sandbox back."
        [WAIT] Empty => Json(schema::<t::SandboxView>);
    ForkSandbox POST "/v1/sandboxes/{id}/fork" Key "Copies a paused or running sandbox; answers when the copies run."
        [] Json(schema::<t::ForkSandbox>) => Json(schema::<t::ForkAnswer>);

    CreateSnapshot POST "/v1/sandboxes/{id}/snapshots" Key "Takes a snapshot of a running or paused sandbox."
        [] Json(schema::<t::CreateSnapshot>) => Json(schema::<t::SnapshotView>);
    RestoreSnapshot POST "/v1/sandboxes/{id}/restore" Key "Puts a sandbox back to a snapshot; answers when it runs."
        [] Json(schema::<t::RestoreSnapshot>) => Json(schema::<t::SandboxView>);
    ListSnapshots GET "/v1/snapshots" Key "The account's snapshots, newest first."
        [LIMIT, OFFSET,
         optional("sandbox", "string", "Only those taken of this sandbox, by id or name."),
         optional("name", "string", "Only the one with this name.")]
        Empty => Json(schema::<t::Page<t::SnapshotView>>);
    GetSnapshot GET "/v1/snapshots/{id}" Key "One snapshot, by id or name."
        [] Empty => Json(schema::<t::SnapshotView>);
    DeleteSnapshot DELETE "/v1/snapshots/{id}" Key "Deletes a snapshot; sandboxes made from it stay."
        [] Empty => Json(schema::<t::DeletedSnapshot>);

    GetUsage GET "/v1/usage" Key "What the account's sandboxes used, in total and each."
        [FROM, TO, optional("sandbox", "string", "Only this sandbox's, by id or name."), LIMIT, OFFSET]
        Empty => Json(schema::<t::UsageReport>);
    GetSandboxUsage GET "/v1/sandboxes/{id}/usage" Key "What one sandbox used."
        [FROM, TO] Empty => Json(schema::<t::SandboxUsage>);

    Execute POST "/v1/sandboxes/{id}/exec" Key "Runs a command; waits for it, or streams what it writes."
        [optional("stream", "boolean", "Whether the answer is a stream of frames; or the body's `stream`.")]
        Json(schema::<t::Execute>) => JsonOrLines(schema::<t::ExecuteAnswer>, schema::<t::ExecuteFrame>);

    WriteFile PUT "/v1/sandboxes/{id}/files" Key "Writes a file; makes missing parents."
        [PATH, MODE] Bytes("application/octet-stream") => Json(schema::<t::Written>);
    ReadFile GET "/v1/sandboxes/{id}/files" Key "Reads a file, or with the header Range a part of it."
        [PATH] Empty => Bytes("application/octet-stream");
    RemoveFile DELETE "/v1/sandboxes/{id}/files" Key "Removes a file or directory."
        [PATH, optional("recursive", "boolean", "Whether a directory goes with all that is in it.")]
        Empty => Json(schema::<t::Deleted>);
    StatFile GET "/v1/sandboxes/{id}/files/stat" Key "What a path names; symbolic links are not followed."
        [PATH] Empty => Json(schema::<t::FileEntry>);
    ListFiles GET "/v1/sandboxes/{id}/files/list" Key "What a directory holds, by name."
        [PATH, optional("limit", "integer", "How many entries at most: 1000 when absent, 10000 at most."), OFFSET]
        Empty => Json(schema::<t::Page<t::FileEntry>>);
    MoveFile POST "/v1/sandboxes/{id}/files/move" Key "Gives a file or directory a new path."
        [] Json(schema::<t::MoveFile>) => Json(schema::<t::Moved>);
    MakeDirectory POST "/v1/sandboxes/{id}/files/mkdir" Key "Makes a directory and its missing parents."
        [] Json(schema::<t::MakeDirectory>) => Json(schema::<t::Created>);
    ReadArchive GET "/v1/sandboxes/{id}/files/archive" Key "A directory as a tar archive."
        [PATH] Empty => Bytes("application/x-tar");
    WriteArchive PUT "/v1/sandboxes/{id}/files/archive" Key "Unpacks a tar archive into a directory."
        [PATH] Bytes("application/x-tar") => Json(schema::<t::Written>);
}
