-- The template that a sandbox's memory is stored against; NULL for one that was booted on its own.
ALTER TABLE sandboxes ADD COLUMN template TEXT;

-- Saved machines that sandboxes begin as.
CREATE TABLE templates (
    -- What the engine finds it by; the name of its directory.
    key          TEXT PRIMARY KEY NOT NULL,
    -- building, ready or removing.
    state        TEXT NOT NULL,
    -- The machine that it is saved from, and the number of that machine's host uid; NULL once it is ready.
    id           TEXT,
    slot         INTEGER,
    -- The name of the image, and its file.
    image        TEXT NOT NULL,
    base_image   TEXT NOT NULL,
    memory_mib   INTEGER NOT NULL,
    disk_mib     INTEGER NOT NULL,
    vcpu         INTEGER NOT NULL,
    -- What it takes on the host's disk.
    bytes        INTEGER NOT NULL DEFAULT 0,
    made_at      INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX templates_by_slot ON templates (slot) WHERE slot IS NOT NULL;

-- Machines that wait for a create to come: each becomes that create's sandbox, with its id and its host uid.
CREATE TABLE slots (
    id                TEXT PRIMARY KEY NOT NULL,
    slot              INTEGER NOT NULL UNIQUE,
    template          TEXT NOT NULL,
    base_image        TEXT NOT NULL,
    memory_mib        INTEGER NOT NULL,
    vcpu              INTEGER NOT NULL,
    cpu_quota_percent INTEGER,
    made_at           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
