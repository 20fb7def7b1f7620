-- After how many idle seconds it shall be destroyed.
ALTER TABLE sandboxes ADD COLUMN auto_destroy_after_seconds INTEGER;

-- What was used: a segment for each stretch of time in which a sandbox ran, or was kept. Outlives the sandbox.
CREATE TABLE usage (
    sandbox       TEXT NOT NULL,
    -- From 1, in the order of time.
    segment       INTEGER NOT NULL,
    account       TEXT NOT NULL,
    name          TEXT NOT NULL,
    -- active or paused.
    kind          TEXT NOT NULL,
    started_at    INTEGER NOT NULL,
    -- NULL while it goes on.
    ended_at      INTEGER,
    -- When it was last seen to go on.
    checkpoint_at INTEGER NOT NULL,
    memory_mib    INTEGER NOT NULL,
    -- Processor time of the machine, in microseconds.
    cpu_us        INTEGER NOT NULL DEFAULT 0,
    -- Space on the host's disk as it was last measured, in KiB; and its sum over time up to a moment, in KiB × milliseconds.
    disk_kib      INTEGER NOT NULL DEFAULT 0,
    disk_kib_ms   INTEGER NOT NULL DEFAULT 0,
    disk_at       INTEGER NOT NULL,
    PRIMARY KEY (sandbox, segment)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_by_account ON usage (account, started_at);
CREATE UNIQUE INDEX usage_that_goes_on ON usage (sandbox) WHERE ended_at IS NULL;

-- Counting begins where a sandbox of an earlier version is in its life.
INSERT INTO usage (sandbox, segment, account, name, kind, started_at, checkpoint_at, memory_mib, disk_at)
    SELECT id, 1, account, name, CASE WHEN state IN ('running', 'pausing') THEN 'active' ELSE 'paused' END, began, began,
        coalesce(json_extract(spec, '$.memory_mib'), 0), began
    FROM (SELECT *, coalesce(last_resumed_at, running_at, created_at) AS began FROM sandboxes
        WHERE state IN ('running', 'pausing', 'paused', 'resuming', 'forking', 'error'));
