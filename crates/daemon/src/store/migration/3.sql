-- The snapshot that its first start begins from; NULL once that start is over.
ALTER TABLE sandboxes ADD COLUMN origin TEXT;
-- The named snapshot that it was created from or last restored to.
ALTER TABLE sandboxes ADD COLUMN snapshot TEXT;
-- The parent of the next snapshot that is taken of it.
ALTER TABLE sandboxes ADD COLUMN parent TEXT;
-- The sandbox that it is a copy of; that one may be gone.
ALTER TABLE sandboxes ADD COLUMN forked_from TEXT;
-- The number of the directory with its saved machine; NULL while there is none that its disk belongs to.
ALTER TABLE sandboxes ADD COLUMN pause INTEGER;
-- Whether the saved machine is another's, so that it needs an identity of its own.
ALTER TABLE sandboxes ADD COLUMN fresh INTEGER NOT NULL DEFAULT 0;
-- When the disk was last written as the saved machine knows it, in nanoseconds.
ALTER TABLE sandboxes ADD COLUMN disk_stamp INTEGER;
ALTER TABLE sandboxes ADD COLUMN paused_at INTEGER;
ALTER TABLE sandboxes ADD COLUMN last_resumed_at INTEGER;

CREATE INDEX sandboxes_by_origin ON sandboxes (origin) WHERE origin IS NOT NULL;

CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY NOT NULL,
    account     TEXT NOT NULL REFERENCES accounts (id),
    -- named, or fork: one that lives as long as the request it was made for.
    kind        TEXT NOT NULL,
    -- creating, ready or deleting.
    state       TEXT NOT NULL,
    name        TEXT,
    description TEXT,
    -- As a JSON object.
    labels      TEXT NOT NULL,
    -- What it was taken of; may be gone.
    sandbox     TEXT NOT NULL,
    parent      TEXT,
    -- The template that its memory is stored against.
    template    TEXT,
    -- What the sandbox was created with, as JSON with a version.
    spec        TEXT NOT NULL,
    -- What it takes on the host's disk.
    bytes       INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX snapshots_by_account ON snapshots (account, id);
CREATE INDEX snapshots_by_sandbox ON snapshots (sandbox);
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (account, name) WHERE name IS NOT NULL AND state <> 'deleting';
