-- Version 2: messages are in several tables that are emptied whole.
--
-- What is deleted stays in a table, and in its indexes, until vacuum takes it away, which it may not
-- while a transaction from before is open anywhere in the database. TRUNCATE may. So messages are sent
-- to one table after the other, and a table from which all of them are gone is truncated:
--
-- | table     | it is                                    | and then                                |
-- |-----------|------------------------------------------|-----------------------------------------|
-- | 1, 2 or 3 | where messages are sent (`current_part`) | left, when it is large and another free |
-- | 1, 2 or 3 | left: messages only go                   | truncated; the last few move to table 0 |
-- | 0         | where the last few of others are, and    | truncated when it is empty              |
-- |           | all that were there before version 2     |                                         |
--
-- A message keeps its seq wherever it is, and all of them are looked at as one, partitioned, table.
-- What `rotate` keeps from call to call is in sequences: they have no versions that could pile up, and
-- what is written there is seen at once, by whatever snapshot.

ALTER TABLE @.message RENAME TO message_0;
ALTER TABLE @.message_0 ADD COLUMN part smallint NOT NULL DEFAULT 0;
CREATE TABLE @.message (LIKE @.message_0 INCLUDING DEFAULTS) PARTITION BY LIST (part);

-- A sequence of its own, as an identity belongs to one table.
ALTER SEQUENCE @.message_seq_seq RENAME TO message_identity;
CREATE SEQUENCE @.message_seq_seq OWNED BY @.message.seq;
SELECT setval('@.message_seq_seq', last_value, is_called) FROM @.message_identity;
ALTER TABLE @.message_0 ALTER COLUMN seq DROP IDENTITY;
ALTER TABLE @.message ALTER COLUMN seq SET DEFAULT nextval('@.message_seq_seq');

CREATE SEQUENCE @.current_part MINVALUE 0;
CREATE SEQUENCE @.next_look MINVALUE 0;
COMMENT ON SEQUENCE @.next_look IS 'when to rotate again, at the earliest, in ms';
CREATE SEQUENCE @.pruned_until MINVALUE 0;
COMMENT ON SEQUENCE @.pruned_until IS 'until when de-duplication is forgotten, in ms';
SELECT setval('@.current_part', 1), setval('@.next_look', 0), setval('@.pruned_until', 0);

CREATE TABLE @.message_1 PARTITION OF @.message (PRIMARY KEY (seq)) FOR VALUES IN (1);
CREATE TABLE @.message_2 PARTITION OF @.message (PRIMARY KEY (seq)) FOR VALUES IN (2);
CREATE TABLE @.message_3 PARTITION OF @.message (PRIMARY KEY (seq)) FOR VALUES IN (3);
ALTER TABLE @.message ATTACH PARTITION @.message_0 FOR VALUES IN (0);

ALTER INDEX @.message_fresh RENAME TO message_0_fresh;
ALTER INDEX @.message_again RENAME TO message_0_again;
ALTER INDEX @.message_delayed RENAME TO message_0_delayed;
ALTER INDEX @.message_leased RENAME TO message_0_leased;
ALTER INDEX @.message_lane RENAME TO message_0_lane;
ALTER INDEX @.message_head RENAME TO message_0_head;
ALTER INDEX @.message_lane_taken RENAME TO message_0_lane_taken;
-- Each takes the one that table 0 has already for its own.
CREATE INDEX message_fresh ON @.message (queue, seq) WHERE state = 0;
CREATE INDEX message_again ON @.message (queue, seq) WHERE state = 1;
CREATE INDEX message_delayed ON @.message (queue, due_at) WHERE state = 2;
CREATE INDEX message_leased ON @.message (lease) WHERE state = 3;
CREATE INDEX message_lane ON @.message (queue, lane, seq) WHERE lane IS NOT NULL;
CREATE INDEX message_head ON @.message (queue, seq) WHERE lane IS NOT NULL AND state IN (0, 1);
CREATE INDEX message_lane_taken ON @.message (queue, lane)
    WHERE lane IS NOT NULL AND state IN (0, 1, 3);

-- Roles keep what they were granted.
DO $do$
DECLARE v_each record;
BEGIN
    FOR v_each IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who,
            a.privilege_type AS what
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = '@.message_0'::regclass AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s ON @.message TO %s', v_each.what, v_each.who);
        IF v_each.what = 'INSERT' THEN
            EXECUTE format('GRANT USAGE ON SEQUENCE @.message_seq_seq TO %s', v_each.who);
            EXECUTE format('GRANT SELECT ON SEQUENCE @.current_part TO %s', v_each.who);
        END IF;
    END LOOP;
    FOR v_each IN
        SELECT format('ALTER TABLE @.message_%s SET (autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
            toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_cost_delay = 0)',
            part) AS statement FROM generate_series(1, 3) AS part
    LOOP
        EXECUTE v_each.statement;
    END LOOP;
END $do$;
