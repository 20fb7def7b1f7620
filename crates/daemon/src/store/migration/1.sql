-- Times are milliseconds since 1970-01-01T00:00:00Z.

-- What the installation remembers about itself: its host id.
CREATE TABLE memory (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
    id         TEXT PRIMARY KEY NOT NULL,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY NOT NULL,
    account      TEXT NOT NULL REFERENCES accounts (id),
    name         TEXT NOT NULL,
    -- The beginning of the key, which may be shown. Look-up is by this, the digest is compared afterwards.
    hint         TEXT NOT NULL,
    digest       BLOB NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    -- Coarse, to the minute.
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_hint ON api_keys (hint);

CREATE TABLE sandboxes (
    id      TEXT PRIMARY KEY NOT NULL,
    account TEXT NOT NULL REFERENCES accounts (id),
    name    TEXT NOT NULL,
    -- Observed: one of the words of the API.
    state   TEXT NOT NULL,
    -- Wanted: running, paused or destroyed.
    desired TEXT NOT NULL,
    -- Why it is in this state, when that is not what was wanted.
    reason  TEXT,
    -- The step of the saga that was begun last; NULL when none is under way.
    step    TEXT,
    -- The number that the host uid is made from. Not NULL for as long as anything may be left on the host.
    slot    INTEGER,
    -- What was asked for, as JSON with a version.
    spec    TEXT NOT NULL,
    -- The engine's record of the machine, as JSON with a version.
    machine TEXT,
    auto_pause_after_seconds INTEGER,
    -- Whether its ports shall have a public URL.
    ingress           INTEGER NOT NULL DEFAULT 0,
    spawn_ms          REAL,
    created_at        INTEGER NOT NULL,
    running_at        INTEGER,
    ended_at          INTEGER,
    expires_at        INTEGER,
    -- Coarse, to some seconds.
    last_activity_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sandboxes_by_account ON sandboxes (account, id);
CREATE INDEX sandboxes_by_state ON sandboxes (state);
CREATE INDEX sandboxes_by_expiry ON sandboxes (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (account, name) WHERE state NOT IN ('destroyed', 'failed');
CREATE UNIQUE INDEX sandboxes_by_slot ON sandboxes (slot) WHERE slot IS NOT NULL;

CREATE TABLE labels (
    sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (sandbox, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_by_value ON labels (key, value);

CREATE TABLE receipts (
    account    TEXT NOT NULL REFERENCES accounts (id),
    -- The idempotency key that the caller chose.
    key        TEXT NOT NULL,
    -- SHA-256 of the request, to notice a key that is used for two of them.
    request    BLOB NOT NULL,
    sandbox    TEXT NOT NULL,
    -- What was answered, as JSON; NULL until the work is done.
    answer     TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX receipts_by_time ON receipts (created_at);

-- The trail: who went where and why. Outlives the sandbox it tells of.
CREATE TABLE transitions (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox    TEXT NOT NULL,
    at         INTEGER NOT NULL,
    event      TEXT NOT NULL,
    from_state TEXT,
    to_state   TEXT NOT NULL,
    reason     TEXT
) STRICT;

CREATE INDEX transitions_by_sandbox ON transitions (sandbox, number);
CREATE INDEX transitions_by_time ON transitions (at);
