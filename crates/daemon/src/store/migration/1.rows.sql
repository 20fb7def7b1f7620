-- Rows as version 1 wrote them: every later version must be able to start from these.
INSERT INTO accounts VALUES ('acc-01', 'owner', 1700000000000);
INSERT INTO api_keys VALUES ('key-01', 'acc-01', 'first', 'skp_01234567', x'00', 1700000000000, NULL, NULL);
INSERT INTO sandboxes (id, account, name, state, desired, slot, spec, machine, created_at, running_at, last_activity_at)
    VALUES ('sb-01hf7yat00000000000000000a', 'acc-01', 'quick-otter', 'running', 'running', 0,
        '{"version":1,"engine":"usermode","shape":"s-1vcpu-256mb","vcpu":1,"memory_mib":256,"disk_mib":10240,"rootfs":"debian:13"}',
        '{"version":1}', 1700000000000, 1700000001000, 1700000001000);
INSERT INTO labels VALUES ('sb-01hf7yat00000000000000000a', 'job', '7');
INSERT INTO transitions (sandbox, at, event, from_state, to_state)
    VALUES ('sb-01hf7yat00000000000000000a', 1700000001000, 'started', 'creating', 'running');
