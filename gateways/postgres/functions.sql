-- The functions of the queues; `tables.sql` and `rotation.sql` say what they work on. All of them are
-- made anew with each version.

-- Time. All of it comes from the first function.

CREATE FUNCTION @.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp()';

CREATE FUNCTION @.later(p_from timestamptz, p_s float8) RETURNS timestamptz LANGUAGE sql STABLE AS
    $$SELECT p_from + least(p_s, 3e10) * interval '1 second'$$;

-- What ends within five microseconds ends now: sums of rounded times never miss their moment.
CREATE FUNCTION @.soon() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    $$SELECT @.now() + interval '5 microseconds'$$;

-- Those who wait for a queue are told when this commits: from which seq on something is fresh ("7") or
-- ready again ("-7"; "-" for anywhere), or in how many seconds something may be ("+1").
CREATE FUNCTION @.tell(p_queue int, p_what text) RETURNS void LANGUAGE sql VOLATILE AS
    $$SELECT pg_notify({channel}, p_queue || ' ' || p_what)$$;

CREATE FUNCTION @.queue_named(p_name text) RETURNS @.queue LANGUAGE plpgsql STABLE AS $fn$
DECLARE v_queue @.queue;
BEGIN
    SELECT * INTO v_queue FROM @.queue WHERE name = p_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such queue' USING ERRCODE = 'PH404';
    END IF;
    RETURN v_queue;
END $fn$;

-- Lanes.

CREATE FUNCTION @.lane_key(p_queue int, p_lane bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$SELECT hashtextextended(encode(p_lane, 'hex'), p_queue)$$;

CREATE FUNCTION @.is_lane_taken(p_queue int, p_lane bytea) RETURNS boolean LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
    RETURN EXISTS (SELECT FROM @.message WHERE queue = p_queue AND lane = p_lane AND state = 3)
        OR EXISTS (SELECT FROM @.lease WHERE queue = p_queue AND lane = p_lane);
END $fn$;

-- Have the head of each lane ready that is not taken, and nothing else of it; tells of what is.
--
-- Here as in `successors` each lane is looked up by itself, which `OFFSET 0` sees to: joined, the
-- planner would read the whole queue, with everything that vacuum could not take away.
CREATE FUNCTION @.arrange(p_queue @.queue, p_lanes bytea[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_lanes bytea[];
    v_ready bigint[];
    v_taken bytea[];
    v_heads bigint[];
BEGIN
    SELECT array_agg(DISTINCT lane) INTO v_lanes FROM unnest(p_lanes) AS lane;
    PERFORM pg_advisory_xact_lock(key) FROM (
        SELECT @.lane_key(p_queue.id, lane) AS key FROM unnest(v_lanes) AS lane ORDER BY 1
    ) AS keys;
    SELECT array_agg(m.seq) FILTER (WHERE m.state <> 3), array_agg(DISTINCT l) FILTER (WHERE m.state = 3)
    INTO v_ready, v_taken FROM unnest(v_lanes) AS l CROSS JOIN LATERAL (
        SELECT seq, state FROM @.message
        WHERE queue = p_queue.id AND lane = l AND state IN (0, 1, 3) OFFSET 0
    ) AS m;
    IF p_queue.is_lifo THEN
        SELECT array_agg(m.seq) INTO v_heads FROM unnest(v_lanes) AS l CROSS JOIN LATERAL (
            SELECT seq FROM @.message WHERE queue = p_queue.id AND lane = l
            ORDER BY seq DESC LIMIT 1
        ) AS m
        WHERE l <> ALL(coalesce(v_taken, '{}'))
        AND (SELECT id FROM @.lease WHERE queue = p_queue.id AND lane = l LIMIT 1) IS NULL;
    ELSE
        SELECT array_agg(m.seq) INTO v_heads FROM unnest(v_lanes) AS l CROSS JOIN LATERAL (
            SELECT seq FROM @.message WHERE queue = p_queue.id AND lane = l
            ORDER BY seq LIMIT 1
        ) AS m
        WHERE l <> ALL(coalesce(v_taken, '{}'))
        AND (SELECT id FROM @.lease WHERE queue = p_queue.id AND lane = l LIMIT 1) IS NULL;
    END IF;
    IF NOT coalesce(v_ready, '{}') <@ coalesce(v_heads, '{}') THEN
        UPDATE @.message SET state = 4 WHERE seq = ANY(v_ready) AND state IN (0, 1)
        AND seq <> ALL(coalesce(v_heads, '{}'));
    END IF;
    IF NOT coalesce(v_heads, '{}') <@ coalesce(v_ready, '{}') THEN
        UPDATE @.message SET state = 1 WHERE seq = ANY(v_heads) AND state = 4;
    END IF;
    -- Those that were ready before too: a receive may have passed them by for the sake of our lock.
    PERFORM @.tell(p_queue.id, coalesce('-' || (SELECT min(s) FROM unnest(v_heads) AS s), '+0'));
END $fn$;

CREATE FUNCTION @.lane_of(p_queue @.queue, p_group bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_group IS NOT NULL THEN 'g'::bytea || p_group
        WHEN p_queue.is_strict THEN ''::bytea END
$$;

-- Sending.

CREATE FUNCTION @.part_key(p_part int) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$SELECT hashtextextended('{lock}', 16 + p_part)$$;

-- The table to send to. `rotate` leaves it alone while this transaction lasts.
CREATE FUNCTION @.part_to_fill() RETURNS int LANGUAGE plpgsql VOLATILE AS $fn$
DECLARE v_part int;
BEGIN
    LOOP
        v_part := pg_sequence_last_value('@.current_part');
        IF v_part IS NULL THEN
            -- What newer servers say instead of an error.
            RAISE EXCEPTION 'permission denied for sequence current_part' USING ERRCODE = '42501';
        END IF;
        PERFORM pg_advisory_xact_lock_shared(@.part_key(v_part));
        -- It may have been left, and emptied, before there was the lock.
        EXIT WHEN v_part = pg_sequence_last_value('@.current_part');
    END LOOP;
    RETURN v_part;
END $fn$;

-- Returns the seq of the first, null when all were duplicates.
CREATE FUNCTION @.send(
    p_name text, p_delay_s float8, p_envelopes text[], p_bodies bytea[],
    p_groups bytea[] DEFAULT NULL, p_keys bytea[] DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_queue @.queue;
    v_now timestamptz;
    v_due timestamptz;
    v_known bytea[];
    v_first bigint;
    v_lanes bytea[];
    v_part int;
BEGIN
    -- Against `declare`, which may give the queue another order.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{lock}' || p_name, 0));
    v_queue := @.queue_named(p_name);
    v_now := @.now();
    IF p_delay_s > 0 THEN v_due := @.later(v_now, p_delay_s); END IF;
    IF p_keys IS NOT NULL AND v_queue.deduplication_window_s > 0 THEN
        WITH admitted AS (
            INSERT INTO @.deduplication AS d (queue, key, until)
            SELECT DISTINCT v_queue.id, key, @.later(v_now, v_queue.deduplication_window_s)
            FROM unnest(p_keys) AS key WHERE key IS NOT NULL ORDER BY key
            ON CONFLICT (queue, key) DO UPDATE SET until = excluded.until
                WHERE d.until <= @.soon()
            RETURNING key
        )
        SELECT array_agg(DISTINCT key) INTO v_known FROM unnest(p_keys) AS key
        WHERE key IS NOT NULL AND key NOT IN (SELECT a.key FROM admitted a);
    ELSE
        p_keys := NULL;
    END IF;
    v_part := @.part_to_fill();
    IF p_keys IS NULL AND p_groups IS NULL AND NOT v_queue.is_strict THEN
        WITH sent AS (
            INSERT INTO @.message (part, queue, state, sent_at, due_at, envelope, body)
            SELECT v_part, v_queue.id, CASE WHEN v_due IS NULL THEN 0 ELSE 2 END, v_now, v_due, e, b
            FROM unnest(p_envelopes, p_bodies) AS given (e, b)
            RETURNING seq
        )
        SELECT min(seq) INTO v_first FROM sent;
    ELSE
        WITH given AS (
            SELECT e, b, @.lane_of(v_queue, g) AS l, k, n,
                row_number() OVER (PARTITION BY k ORDER BY n) AS copy
            FROM unnest(p_envelopes, p_bodies, p_groups, p_keys) WITH ORDINALITY
                AS given (e, b, g, k, n)
        ), sent AS (
            INSERT INTO @.message (part, queue, state, sent_at, due_at, lane, envelope, body)
            SELECT v_part, v_queue.id,
                CASE WHEN v_due IS NOT NULL THEN 2 WHEN l IS NOT NULL THEN 4 ELSE 0 END,
                v_now, v_due, l, e, b
            FROM given WHERE k IS NULL OR (copy = 1 AND k <> ALL(coalesce(v_known, '{}')))
            ORDER BY n
            RETURNING seq, lane
        )
        SELECT min(seq), array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL)
        INTO v_first, v_lanes FROM sent;
    END IF;
    IF v_lanes IS NOT NULL AND v_due IS NULL THEN
        PERFORM @.arrange(v_queue, v_lanes);
    END IF;
    IF v_due IS NOT NULL THEN
        PERFORM @.tell(v_queue.id, '+' || p_delay_s);
    ELSIF v_first IS NOT NULL THEN
        PERFORM @.tell(v_queue.id, v_first::text);
    END IF;
    RETURN v_first;
END $fn$;

-- Time and leases.

-- Move messages, leased ones too, to the dead-letter queue; false when there is none.
CREATE FUNCTION @.dead_letter(p_queue @.queue, p_seqs bigint[]) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_target @.queue;
    v_now timestamptz := @.now();
    v_first bigint;
    v_lanes bytea[];
BEGIN
    SELECT * INTO v_target FROM @.queue WHERE name = p_queue.dead_letter_queue;
    IF NOT FOUND THEN RETURN false; END IF;
    WITH moved AS (
        UPDATE @.message m SET
            queue = v_target.id, seq = dead.place, state = CASE WHEN dead.lane IS NULL THEN 0 ELSE 4 END,
            attempt = 0, lease = NULL, sent_at = v_now, due_at = NULL, lane = dead.lane,
            moved_at = v_now, moved_attempt = m.attempt, moved_from = p_queue.name
        FROM (
            SELECT seq, nextval('@.message_seq_seq') AS place,
                @.lane_of(v_target, nullif(substring(lane FROM 2), '')) AS lane
            FROM (SELECT seq, lane FROM @.message WHERE seq = ANY(p_seqs) ORDER BY seq) AS dead
        ) AS dead
        WHERE m.seq = dead.seq
        RETURNING m.seq, m.lane
    )
    SELECT min(seq), array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL)
    INTO v_first, v_lanes FROM moved;
    IF v_lanes IS NOT NULL THEN PERFORM @.arrange(v_target, v_lanes); END IF;
    PERFORM @.tell(v_target.id, v_first::text);
    RETURN true;
END $fn$;

-- Do what time has brought since p_since: leases and sessions that are over, delays too. Returns the
-- lowest seq that is back.
CREATE FUNCTION @.promote(p_queue @.queue, p_since timestamptz) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_soon timestamptz := @.soon();
    v_leases bigint[];
    v_lanes bytea[];
    v_more bytea[];
    v_dead bigint[];
    v_delayed bigint[];
    v_first bigint;
    v_due bigint;
BEGIN
    SELECT array_agg(id), array_agg(lane) FILTER (WHERE lane IS NOT NULL)
    INTO v_leases, v_lanes FROM (
        SELECT id, lane FROM @.lease
        WHERE queue = p_queue.id AND due_at <= v_soon AND due_at >= p_since
        ORDER BY due_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS over;
    IF v_leases IS NOT NULL THEN
        IF p_queue.max_receive_count IS NOT NULL THEN
            SELECT array_agg(seq), array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL)
            INTO v_dead, v_more FROM (
                SELECT seq, lane FROM @.message WHERE lease = ANY(v_leases) AND state = 3
                AND attempt >= p_queue.max_receive_count ORDER BY seq FOR UPDATE
            ) AS dead;
            IF v_dead IS NOT NULL AND @.dead_letter(p_queue, v_dead) THEN
                v_lanes := v_lanes || v_more;
            END IF;
        END IF;
        WITH back AS (
            UPDATE @.message
            SET state = CASE WHEN lane IS NULL THEN 1 ELSE 4 END, lease = NULL
            WHERE lease = ANY(v_leases) AND state = 3
            RETURNING seq, lane
        )
        SELECT array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL), min(seq)
        INTO v_more, v_first FROM back;
        v_lanes := v_lanes || v_more;
        DELETE FROM @.lease WHERE id = ANY(v_leases);
        PERFORM @.tell(p_queue.id, coalesce('-' || v_first, '+0'));
    END IF;
    SELECT array_agg(seq) INTO v_delayed FROM (
        SELECT seq FROM @.message
        WHERE queue = p_queue.id AND state = 2 AND due_at <= v_soon AND due_at >= p_since
        ORDER BY due_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS due;
    IF v_delayed IS NOT NULL THEN
        WITH back AS (
            UPDATE @.message
            SET state = CASE WHEN lane IS NULL THEN 1 ELSE 4 END, due_at = NULL
            WHERE seq = ANY(v_delayed)
            RETURNING seq, lane
        )
        SELECT array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL), min(seq)
        INTO v_more, v_due FROM back;
        v_lanes := v_lanes || v_more;
        PERFORM @.tell(p_queue.id, '-' || v_due);
    END IF;
    IF cardinality(v_lanes) > 0 THEN PERFORM @.arrange(p_queue, v_lanes); END IF;
    RETURN least(v_first, v_due);
END $fn$;

-- The same, if there is anything to do.
CREATE FUNCTION @.catch_up(p_queue @.queue, p_since timestamptz) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE v_soon timestamptz := @.soon();
BEGIN
    IF EXISTS (
        SELECT FROM @.lease
        WHERE queue = p_queue.id AND due_at <= v_soon AND due_at >= p_since
    ) OR EXISTS (
        SELECT FROM @.message
        WHERE queue = p_queue.id AND state = 2 AND due_at <= v_soon AND due_at >= p_since
    ) THEN
        RETURN @.promote(p_queue, p_since);
    END IF;
    RETURN NULL;
END $fn$;

-- The queue, after what time has brought to it.
CREATE FUNCTION @.caught_up(p_name text, p_since timestamptz) RETURNS @.queue LANGUAGE plpgsql AS $fn$
DECLARE v_queue @.queue := @.queue_named(p_name);
BEGIN
    PERFORM @.catch_up(v_queue, coalesce(p_since, '-infinity'));
    RETURN v_queue;
END $fn$;

-- In how many seconds something of a queue will be ready, null for never.
CREATE FUNCTION @.next_due_s(p_queue int) RETURNS float8 LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_now timestamptz := @.now();
    v_lease timestamptz;
    v_delay timestamptz;
BEGIN
    SELECT due_at INTO v_lease FROM @.lease
    WHERE queue = p_queue AND due_at > v_now ORDER BY due_at LIMIT 1;
    SELECT due_at INTO v_delay FROM @.message
    WHERE queue = p_queue AND state = 2 AND due_at > v_now ORDER BY due_at LIMIT 1;
    RETURN extract(epoch FROM least(v_lease, v_delay) - v_now);
END $fn$;

-- Receiving.

CREATE TYPE @.received AS (
    seq bigint, delivery int, attempt int, lease bigint,
    moved_at float8, moved_attempt int, moved_from text, envelope text, body bytea
);

-- In PL/pgSQL, which keeps its plan: SQL would be planned anew each time.
CREATE FUNCTION @.hand_out(p_seqs bigint[], p_lease bigint) RETURNS SETOF @.received
LANGUAGE plpgsql AS $fn$
BEGIN
    RETURN QUERY UPDATE @.message SET
        state = 3, lease = p_lease, delivery = delivery + 1, attempt = attempt + 1,
        due_at = NULL
    WHERE seq = ANY(p_seqs)
    RETURNING seq, delivery, attempt, lease,
        extract(epoch FROM moved_at)::float8, moved_attempt, moved_from,
        envelope, body;
END $fn$;

-- Lease up to p_max of what comes next; fresh ones from the seq p_from on, ready again from p_again.
--
-- The first row is no message: seq is the last fresh one that was leased (0: none), delivery the
-- queue's id, attempt how many were found (p_max or more: there may be others), lease the time in
-- microseconds, moved_at in how many seconds the next will be ready, moved_from the last that was
-- ready again and leased, and envelope the first that was found and not leased, if there is one.
CREATE FUNCTION @.receive(
    p_name text, p_max int, p_lease_s float8, p_from bigint, p_since float8,
    p_again bigint DEFAULT 0
) RETURNS SETOF @.received LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $fn$
DECLARE
    v_queue @.queue := @.queue_named(p_name);
    v_back bigint := @.catch_up(v_queue, coalesce(to_timestamp(p_since), '-infinity'));
    v_again bigint[];
    v_fresh bigint[];
    v_seqs bigint[];
    v_is_laned boolean;
    v_found int;
    v_lanes bytea[];
    v_lease bigint;
    v_head @.received;
BEGIN
    IF v_queue.is_lifo THEN
        SELECT array_agg(seq), bool_or(lane IS NOT NULL) INTO v_again, v_is_laned FROM (
            SELECT seq, lane FROM @.message WHERE queue = v_queue.id AND state = 1
            ORDER BY seq DESC LIMIT p_max FOR UPDATE SKIP LOCKED
        ) AS again;
        SELECT array_agg(seq) INTO v_fresh FROM (
            SELECT seq FROM @.message WHERE queue = v_queue.id AND state = 0
            ORDER BY seq DESC LIMIT p_max FOR UPDATE SKIP LOCKED
        ) AS fresh;
    ELSE
        SELECT array_agg(seq), bool_or(lane IS NOT NULL) INTO v_again, v_is_laned FROM (
            SELECT seq, lane FROM @.message
            WHERE queue = v_queue.id AND state = 1 AND seq >= least(p_again, v_back)
            ORDER BY seq LIMIT p_max FOR UPDATE SKIP LOCKED
        ) AS again;
        SELECT array_agg(seq) INTO v_fresh FROM (
            SELECT seq FROM @.message WHERE queue = v_queue.id AND state = 0 AND seq >= p_from
            ORDER BY seq LIMIT p_max FOR UPDATE SKIP LOCKED
        ) AS fresh;
    END IF;
    v_found := coalesce(cardinality(v_again), 0) + coalesce(cardinality(v_fresh), 0);
    IF v_again IS NULL THEN
        v_seqs := v_fresh;
    ELSIF v_queue.is_lifo THEN
        v_seqs := ARRAY(SELECT s FROM unnest(v_again || v_fresh) AS s ORDER BY s DESC LIMIT p_max);
    ELSE
        v_seqs := ARRAY(SELECT s FROM unnest(v_again || v_fresh) AS s ORDER BY s LIMIT p_max);
    END IF;
    IF v_is_laned THEN
        SELECT array_agg(seq), array_agg(lane) FILTER (WHERE lane IS NOT NULL)
        INTO v_seqs, v_lanes FROM @.message WHERE seq = ANY(v_seqs)
        AND (lane IS NULL OR pg_try_advisory_xact_lock(@.lane_key(queue, lane)));
        IF v_lanes IS NOT NULL AND NOT v_queue.is_strict AND cardinality(v_seqs) < p_max THEN
            v_seqs := v_seqs || @.successors(v_queue, v_lanes, p_max - cardinality(v_seqs));
        END IF;
    END IF;
    SELECT coalesce(max(s), 0) INTO v_head.seq FROM unnest(v_fresh) AS s WHERE s = ANY(v_seqs);
    IF v_again IS NOT NULL THEN
        SELECT max(s) FILTER (WHERE s = ANY(v_seqs)) INTO v_head.moved_from FROM unnest(v_again) AS s;
        SELECT min(s) INTO v_head.envelope FROM unnest(v_again || v_fresh) AS s
        WHERE s <> ALL(coalesce(v_seqs, '{}'));
    END IF;
    v_head.delivery := v_queue.id;
    v_head.attempt := v_found;
    v_head.lease := extract(epoch FROM @.now()) * 1e6;
    IF v_found < p_max THEN v_head.moved_at := @.next_due_s(v_queue.id); END IF;
    RETURN NEXT v_head;
    IF cardinality(v_seqs) > 0 THEN
        INSERT INTO @.lease (queue, due_at) VALUES (v_queue.id, @.later(@.now(), p_lease_s))
        RETURNING id INTO v_lease;
        RETURN QUERY SELECT * FROM @.hand_out(v_seqs, v_lease);
    END IF;
END $fn$;

-- What follows the heads of lanes that this transaction has locked, up to a delayed one.
CREATE FUNCTION @.successors(p_queue @.queue, p_lanes bytea[], p_max int) RETURNS bigint[]
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_lane bytea;
    v_seqs bigint[] := '{}';
BEGIN
    FOREACH v_lane IN ARRAY p_lanes LOOP
        EXIT WHEN cardinality(v_seqs) >= p_max;
        IF p_queue.is_lifo THEN
            v_seqs := v_seqs || ARRAY(
                SELECT seq FROM (
                    SELECT seq, bool_or(state = 2) OVER (ORDER BY seq DESC) AS is_behind FROM (
                        SELECT seq, state FROM @.message
                        WHERE queue = p_queue.id AND lane = v_lane AND state IN (2, 4)
                        ORDER BY seq DESC LIMIT p_max - cardinality(v_seqs)
                    ) AS next
                ) AS next WHERE NOT is_behind
            );
        ELSE
            v_seqs := v_seqs || ARRAY(
                SELECT seq FROM (
                    SELECT seq, bool_or(state = 2) OVER (ORDER BY seq) AS is_behind FROM (
                        SELECT seq, state FROM @.message
                        WHERE queue = p_queue.id AND lane = v_lane AND state IN (2, 4)
                        ORDER BY seq LIMIT p_max - cardinality(v_seqs)
                    ) AS next
                ) AS next WHERE NOT is_behind
            );
        END IF;
    END LOOP;
    RETURN v_seqs;
END $fn$;

-- Settling and extending.

-- Ack (p_delays_s null, or null for one of them), defer (its seconds) or abandon (-1) what is leased.
--
-- Returns the positions of those that were not, from 1: as 0 when the receipt is not valid, as 1 when
-- its lease is, so that a settlement of it was applied before.
CREATE FUNCTION @.settle(
    p_name text, p_seqs bigint[], p_deliveries int[], p_leases bigint[], p_delays_s float8[]
) RETURNS TABLE (pos int, was_applied int) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_queue @.queue := @.queue_named(p_name);
    v_now timestamptz := @.now();
    v_soon timestamptz := @.soon();
    v_done int[];
    v_lanes bytea[];
    v_some int[];
    v_more bytea[];
    v_dead bigint[];
    v_next_s float8;
    v_ready bigint;
BEGIN
    WITH gone AS (
        DELETE FROM @.message m
        USING unnest(p_seqs, p_deliveries, p_delays_s) WITH ORDINALITY AS r (seq, delivery, delay, n),
            @.lease l
        WHERE m.seq = r.seq AND m.delivery = r.delivery AND m.state = 3 AND m.queue = v_queue.id
        AND r.delay IS NULL AND l.id = m.lease AND l.due_at > v_soon
        RETURNING r.n, m.lane
    )
    SELECT array_agg(n), array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL)
    INTO v_done, v_lanes FROM gone;
    IF p_delays_s IS NOT NULL THEN
        IF v_queue.max_receive_count IS NOT NULL THEN
            SELECT array_agg(n), array_agg(seq), array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL)
            INTO v_some, v_dead, v_more FROM (
                SELECT r.n, m.seq, m.lane FROM @.message m
                JOIN unnest(p_seqs, p_deliveries, p_delays_s) WITH ORDINALITY
                    AS r (seq, delivery, delay, n) ON m.seq = r.seq AND m.delivery = r.delivery
                JOIN @.lease l ON l.id = m.lease
                WHERE m.state = 3 AND m.queue = v_queue.id AND l.due_at > v_soon
                AND r.delay >= 0 AND m.attempt >= v_queue.max_receive_count
                ORDER BY m.seq FOR UPDATE OF m
            ) AS dead;
            IF v_dead IS NOT NULL AND @.dead_letter(v_queue, v_dead) THEN
                v_done := v_done || v_some;
                v_lanes := v_lanes || v_more;
            END IF;
        END IF;
        WITH back AS (
            UPDATE @.message m SET
                state = CASE WHEN r.delay > 0 THEN 2 WHEN m.lane IS NULL THEN 1 ELSE 4 END,
                due_at = CASE WHEN r.delay > 0 THEN @.later(v_now, r.delay) END,
                attempt = CASE WHEN r.delay < 0 THEN m.attempt - 1 ELSE m.attempt END,
                lease = NULL
            FROM unnest(p_seqs, p_deliveries, p_delays_s) WITH ORDINALITY
                AS r (seq, delivery, delay, n), @.lease l
            WHERE m.seq = r.seq AND m.delivery = r.delivery AND m.state = 3
            AND m.queue = v_queue.id AND r.delay IS NOT NULL
            AND l.id = m.lease AND l.due_at > v_soon
            RETURNING r.n, m.seq, m.lane, r.delay
        )
        SELECT array_agg(n), array_agg(DISTINCT lane) FILTER (WHERE lane IS NOT NULL),
            min(delay) FILTER (WHERE delay > 0), min(seq) FILTER (WHERE delay <= 0 AND lane IS NULL)
        INTO v_some, v_more, v_next_s, v_ready FROM back;
        v_done := v_done || v_some;
        v_lanes := v_lanes || v_more;
        IF v_next_s IS NOT NULL THEN PERFORM @.tell(v_queue.id, '+' || v_next_s); END IF;
        IF v_ready IS NOT NULL THEN PERFORM @.tell(v_queue.id, '-' || v_ready); END IF;
    END IF;
    IF cardinality(v_lanes) > 0 THEN PERFORM @.arrange(v_queue, v_lanes); END IF;
    IF coalesce(cardinality(v_done), 0) < cardinality(p_seqs) THEN
        RETURN QUERY SELECT r.n::int, CASE WHEN EXISTS (
            SELECT FROM @.lease l
            WHERE l.id = r.lease AND l.queue = v_queue.id AND l.due_at > v_soon
        ) THEN 1 ELSE 0 END
        FROM unnest(p_leases) WITH ORDINALITY AS r (lease, n)
        WHERE r.n <> ALL(coalesce(v_done, '{}'));
    END IF;
END $fn$;

-- Make leases end later. Returns the positions of those that do, and their leases: another one where
-- only a part of what was received together is extended.
CREATE FUNCTION @.extend(
    p_name text, p_seqs bigint[], p_deliveries int[], p_lease_s float8
) RETURNS TABLE (pos int, lease bigint) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_queue @.queue := @.queue_named(p_name);
    v_until timestamptz := @.later(@.now(), p_lease_s);
    v_soon timestamptz := @.soon();
    v_leases bigint[];
    v_parts bigint[];
    v_new bigint;
BEGIN
    SELECT array_agg(id) INTO v_leases FROM (
        SELECT l.id FROM @.lease l WHERE l.due_at > v_soon AND l.lane IS NULL AND l.id IN (
            SELECT m.lease FROM @.message m
            JOIN unnest(p_seqs, p_deliveries) AS r (seq, delivery)
            ON m.seq = r.seq AND m.delivery = r.delivery
            WHERE m.state = 3 AND m.queue = v_queue.id
        ) ORDER BY l.id FOR UPDATE
    ) AS held;
    IF v_leases IS NULL THEN RETURN; END IF;
    SELECT array_agg(DISTINCT m.lease) INTO v_parts FROM @.message m
    WHERE m.lease = ANY(v_leases) AND m.state = 3 AND m.seq <> ALL(p_seqs);
    UPDATE @.lease l SET due_at = v_until
    WHERE l.id = ANY(v_leases) AND l.id <> ALL(coalesce(v_parts, '{}'));
    IF v_parts IS NOT NULL THEN
        INSERT INTO @.lease (queue, due_at) VALUES (v_queue.id, v_until) RETURNING id INTO v_new;
        UPDATE @.message m SET lease = v_new
        FROM unnest(p_seqs, p_deliveries) AS r (seq, delivery)
        WHERE m.seq = r.seq AND m.delivery = r.delivery AND m.state = 3
        AND m.lease = ANY(v_parts);
    END IF;
    RETURN QUERY SELECT r.n::int, m.lease
    FROM unnest(p_seqs, p_deliveries) WITH ORDINALITY AS r (seq, delivery, n)
    JOIN @.message m ON m.seq = r.seq AND m.delivery = r.delivery
    WHERE m.state = 3 AND (m.lease = ANY(v_leases) OR m.lease = v_new);
END $fn$;

-- Sessions: a lane, for one consumer.

-- Lock the session of a group, or the next that has a message ready. One row: the lease, null when
-- there is none, the group, and in how many seconds there may be.
CREATE FUNCTION @.accept(p_name text, p_group bytea, p_lease_s float8, p_since float8)
RETURNS TABLE (lease bigint, session bytea, queue int, next_s float8)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_queue @.queue := @.caught_up(p_name, to_timestamp(p_since));
    v_lane bytea := 'g'::bytea || p_group;
    v_lease bigint;
BEGIN
    IF v_lane IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(@.lane_key(v_queue.id, v_lane));
        IF @.is_lane_taken(v_queue.id, v_lane) THEN v_lane := NULL; END IF;
    ELSE
        FOR v_lane IN
            SELECT m.lane FROM @.message m
            WHERE m.queue = v_queue.id AND m.lane IS NOT NULL AND m.state IN (0, 1) AND m.lane <> ''
            ORDER BY CASE WHEN v_queue.is_lifo THEN -m.seq ELSE m.seq END
            LIMIT 100 FOR UPDATE SKIP LOCKED
        LOOP
            EXIT WHEN pg_try_advisory_xact_lock(@.lane_key(v_queue.id, v_lane))
                AND NOT @.is_lane_taken(v_queue.id, v_lane);
            v_lane := NULL;
        END LOOP;
    END IF;
    IF v_lane IS NOT NULL THEN
        INSERT INTO @.lease (queue, due_at, lane)
        VALUES (v_queue.id, @.later(@.now(), p_lease_s), v_lane) RETURNING id INTO v_lease;
        UPDATE @.message m SET state = 4
        WHERE m.queue = v_queue.id AND m.lane = v_lane AND m.state IN (0, 1);
    END IF;
    RETURN QUERY SELECT v_lease, substring(v_lane FROM 2), v_queue.id, @.next_due_s(v_queue.id);
END $fn$;

-- What comes next in a session, leased until its lock ends; as `receive`, but lease of the first row
-- is 1 where the newest come first.
CREATE FUNCTION @.receive_session(p_name text, p_lease bigint, p_max int)
RETURNS SETOF @.received LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_queue @.queue := @.caught_up(p_name, NULL);
    v_lane bytea;
    v_seqs bigint[];
    v_head @.received;
BEGIN
    -- Locked, so that `promote` does not end it meanwhile.
    SELECT lane INTO v_lane FROM @.lease
    WHERE id = p_lease AND queue = v_queue.id AND due_at > @.soon() FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session is not locked any more' USING ERRCODE = 'PH410';
    END IF;
    v_seqs := @.successors(v_queue, ARRAY[v_lane], p_max);
    v_head.seq := 0;
    v_head.delivery := v_queue.id;
    v_head.attempt := cardinality(v_seqs);
    v_head.lease := v_queue.is_lifo::int;
    v_head.moved_at := @.next_due_s(v_queue.id);
    RETURN NEXT v_head;
    RETURN QUERY SELECT * FROM @.hand_out(v_seqs, p_lease);
END $fn$;

-- Have a session's lock, and what was received under it, end later; false when it is over.
CREATE FUNCTION @.renew(p_lease bigint, p_lease_s float8) RETURNS boolean LANGUAGE plpgsql AS $fn$
BEGIN
    UPDATE @.lease SET due_at = @.later(@.now(), p_lease_s)
    WHERE id = p_lease AND due_at > @.soon();
    RETURN FOUND;
END $fn$;

-- Hand back what is leased under a session's lock, uncounted, and let go of it.
CREATE FUNCTION @.release(p_name text, p_lease bigint) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_queue @.queue := @.queue_named(p_name);
    v_lane bytea;
BEGIN
    SELECT lane INTO v_lane FROM @.lease
    WHERE id = p_lease AND queue = v_queue.id AND due_at > @.soon() FOR UPDATE;
    IF FOUND THEN
        UPDATE @.message SET state = 4, lease = NULL, attempt = attempt - 1
        WHERE lease = p_lease AND state = 3;
        DELETE FROM @.lease WHERE id = p_lease;
        PERFORM @.arrange(v_queue, ARRAY[v_lane]);
    END IF;
END $fn$;

-- Queues.

-- Make a queue, or, unless p_is_name_only, have it as given.
CREATE FUNCTION @.declare(
    p_name text, p_is_lifo boolean, p_is_strict boolean, p_max_receive_count int,
    p_dead_letter_queue text, p_deduplication_window_s float8, p_is_name_only boolean
) RETURNS void LANGUAGE plpgsql AS $fn$
DECLARE
    v_old @.queue;
    v_queue @.queue;
    v_lanes bytea[];
BEGIN
    -- Looked at first: who may not make queues may find that they are there.
    SELECT * INTO v_old FROM @.queue WHERE name = p_name;
    IF NOT FOUND THEN
        INSERT INTO @.queue (
            name, is_lifo, is_strict, max_receive_count, dead_letter_queue, deduplication_window_s
        ) VALUES (
            p_name, p_is_lifo, p_is_strict, p_max_receive_count, p_dead_letter_queue,
            p_deduplication_window_s
        ) ON CONFLICT (name) DO NOTHING;
        IF FOUND THEN RETURN; END IF;
        SELECT * INTO v_old FROM @.queue WHERE name = p_name;
    END IF;
    IF p_is_name_only OR (v_old.is_lifo, v_old.is_strict, v_old.max_receive_count,
        v_old.dead_letter_queue, v_old.deduplication_window_s) IS NOT DISTINCT FROM
        (p_is_lifo, p_is_strict, p_max_receive_count, p_dead_letter_queue,
        p_deduplication_window_s) THEN RETURN; END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('{lock}' || p_name, 0));
    PERFORM pg_advisory_xact_lock(@.rotation_key());
    UPDATE @.queue SET
        is_lifo = p_is_lifo, is_strict = p_is_strict, max_receive_count = p_max_receive_count,
        dead_letter_queue = p_dead_letter_queue, deduplication_window_s = p_deduplication_window_s
    WHERE name = p_name RETURNING * INTO v_queue;
    IF (v_old.is_lifo, v_old.is_strict) <> (p_is_lifo, p_is_strict) THEN
        UPDATE @.message SET
            lane = @.lane_of(v_queue, NULL),
            state = CASE WHEN state NOT IN (0, 1, 4) THEN state WHEN v_queue.is_strict THEN 4 ELSE 1 END
        WHERE queue = v_queue.id AND (lane IS NULL OR lane = '');
        SELECT array_agg(DISTINCT lane) INTO v_lanes FROM @.message
        WHERE queue = v_queue.id AND lane IS NOT NULL;
        IF v_lanes IS NOT NULL THEN PERFORM @.arrange(v_queue, v_lanes); END IF;
        PERFORM @.tell(v_queue.id, '-');
    END IF;
END $fn$;

-- What is in one queue, or, for null, in each.
CREATE FUNCTION @.stats(p_name text)
RETURNS TABLE (name text, visible bigint, in_flight bigint, delayed bigint, oldest_s float8)
LANGUAGE plpgsql AS $fn$
DECLARE v_now timestamptz;
BEGIN
    IF p_name IS NULL THEN
        PERFORM @.caught_up(q.name, NULL) FROM @.queue q;
    ELSE
        PERFORM @.caught_up(p_name, NULL);
    END IF;
    v_now := @.now();
    RETURN QUERY SELECT q.name,
        count(m.seq) FILTER (WHERE m.state IN (0, 1, 4)),
        count(m.seq) FILTER (WHERE m.state = 3),
        count(m.seq) FILTER (WHERE m.state = 2),
        extract(epoch FROM v_now - min(m.sent_at))::float8
    FROM @.queue q LEFT JOIN @.message m ON m.queue = q.id
    WHERE p_name IS NULL OR q.name = p_name
    GROUP BY q.name ORDER BY q.name COLLATE "C";
END $fn$;

-- The next messages that are not leased or delayed.
CREATE FUNCTION @.peek(p_name text, p_max int) RETURNS SETOF @.received
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE v_queue @.queue := @.caught_up(p_name, NULL);
BEGIN
    RETURN QUERY SELECT m.seq, m.delivery, m.attempt, m.lease,
        extract(epoch FROM m.moved_at)::float8, m.moved_attempt, m.moved_from, m.envelope, m.body
    FROM @.message m WHERE m.seq IN (
        (SELECT seq FROM @.message WHERE queue = v_queue.id AND state = 0
        ORDER BY CASE WHEN v_queue.is_lifo THEN -seq ELSE seq END LIMIT p_max)
        UNION ALL
        (SELECT seq FROM @.message WHERE queue = v_queue.id AND state = 1
        ORDER BY CASE WHEN v_queue.is_lifo THEN -seq ELSE seq END LIMIT p_max)
        UNION ALL
        (SELECT seq FROM @.message WHERE queue = v_queue.id AND lane IS NOT NULL AND state = 4
        ORDER BY CASE WHEN v_queue.is_lifo THEN -seq ELSE seq END LIMIT p_max)
    ) ORDER BY CASE WHEN v_queue.is_lifo THEN -m.seq ELSE m.seq END LIMIT p_max;
END $fn$;

-- Remove every message, leased ones too; sessions stay with their consumers.
CREATE FUNCTION @.purge(p_name text) RETURNS bigint LANGUAGE plpgsql AS $fn$
DECLARE
    v_queue @.queue := @.caught_up(p_name, NULL);
    v_count bigint;
BEGIN
    -- As what moves to another table meanwhile is in none of both for us.
    PERFORM pg_advisory_xact_lock(@.rotation_key());
    DELETE FROM @.message WHERE queue = v_queue.id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM @.lease WHERE queue = v_queue.id AND lane IS NULL;
    PERFORM @.tell(v_queue.id, '-');
    RETURN v_count;
END $fn$;

-- Rotation: see `rotation.sql`.

CREATE FUNCTION @.rotation_key() RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$SELECT hashtextextended('{lock}', 2)$$;

-- Move messages of a table that is left to table 0, but for those that are leased, or of lanes that are.
CREATE FUNCTION @.move_rest(p_part int, p_max int) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_seqs bigint[];
    v_queue int;
    v_what text;
BEGIN
    -- With its lock, and free, a lane is no one else's; without one, the lock of the row does.
    WITH rest AS MATERIALIZED (
        SELECT seq, queue, lane FROM @.message WHERE part = p_part AND state <> 3 LIMIT p_max
    ), lanes AS MATERIALIZED (
        SELECT DISTINCT queue, lane FROM rest WHERE lane IS NOT NULL ORDER BY queue, lane
    ), free AS MATERIALIZED (
        SELECT queue, lane FROM lanes WHERE pg_try_advisory_xact_lock(@.lane_key(queue, lane))
    )
    SELECT array_agg(seq) INTO v_seqs FROM rest LEFT JOIN free USING (queue, lane)
    WHERE rest.lane IS NULL OR free.lane IS NOT NULL;
    SELECT array_agg(seq) INTO v_seqs FROM (
        SELECT seq FROM @.message WHERE part = p_part AND seq = ANY(v_seqs) AND state <> 3
        AND (lane IS NULL OR NOT @.is_lane_taken(queue, lane))
        FOR UPDATE SKIP LOCKED
    ) AS found;
    FOR v_queue, v_what IN
        WITH gone AS (
            DELETE FROM @.message WHERE part = p_part AND seq = ANY(v_seqs) RETURNING *
        ), moved AS (
            INSERT INTO @.message (
                part, seq, queue, state, priority, attempt, delivery, lease, sent_at, due_at,
                moved_at, moved_attempt, moved_from, lane, envelope, body
            ) SELECT 0, seq, queue, state, priority, attempt, delivery, lease, sent_at, due_at,
                moved_at, moved_attempt, moved_from, lane, envelope, body
            FROM gone RETURNING queue, state, seq
        )
        SELECT queue, CASE state WHEN 1 THEN '-' ELSE '' END || min(seq)
        FROM moved WHERE state IN (0, 1) GROUP BY queue, state
    LOOP
        -- A receive may have passed them by for the sake of our lock.
        PERFORM @.tell(v_queue, v_what);
    END LOOP;
END $fn$;

-- Have space given back that messages have left, and forget old de-duplication ids. What cannot be
-- had within p_lock_ms is left for later. Called now and then by each process that receives; most
-- calls find that it is not time. With the rights of the owner, as TRUNCATE needs them.
CREATE FUNCTION @.rotate(p_large_bytes bigint, p_every_ms bigint, p_lock_ms int)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_started timestamptz := clock_timestamp();
    v_started_ms bigint := extract(epoch FROM v_started) * 1000;
    v_current int;
    v_size bigint;
    v_few bigint;
    v_count bigint;
    v_part int;
    v_free int;
    v_rest int;
    v_took_ms bigint;
BEGIN
    IF v_started_ms < pg_sequence_last_value('@.next_look')
        OR current_setting('transaction_isolation') <> 'read committed'
        OR NOT pg_try_advisory_xact_lock(@.rotation_key()) THEN RETURN; END IF;
    -- Already now, so that the others do not queue up.
    PERFORM setval('@.next_look', v_started_ms + p_every_ms);
    PERFORM set_config('lock_timeout', p_lock_ms || 'ms', true);
    v_current := pg_sequence_last_value('@.current_part');
    v_size := pg_table_size(format('@.message_%s', v_current)::regclass);
    -- To move one costs what it costs to send it: so few that it does not count.
    v_few := v_size / 4096;
    FOR v_part IN SELECT part FROM generate_series(0, 3) AS part WHERE part <> v_current LOOP
        IF pg_relation_size(format('@.message_%s', v_part)::regclass) > 0 THEN
            -- Whoever has sent to it has ended, and what it holds can be seen.
            CONTINUE WHEN NOT pg_try_advisory_xact_lock(@.part_key(v_part));
            SELECT count(*) INTO v_count FROM (
                SELECT FROM @.message WHERE part = v_part LIMIT v_few + 1
            ) AS found;
            IF v_count > 0 THEN
                IF v_part > 0 AND v_count <= v_few THEN v_rest := v_part; END IF;
                CONTINUE;
            END IF;
            BEGIN
                EXECUTE format('TRUNCATE ONLY @.message_%s', v_part);
            EXCEPTION WHEN lock_not_available THEN
                -- A transaction that has looked at it is open: not again for a while.
                PERFORM setval('@.next_look', v_started_ms + 50 * greatest(p_every_ms, p_lock_ms));
                RETURN;
            END;
        END IF;
        IF v_part > 0 THEN v_free := v_part; END IF;
    END LOOP;
    IF v_size > p_large_bytes AND v_free IS NOT NULL THEN
        PERFORM setval('@.current_part', v_free);
    ELSIF v_size > p_large_bytes AND v_rest IS NOT NULL THEN
        PERFORM @.move_rest(v_rest, 5000);
    END IF;
    PERFORM @.prune();
    v_took_ms := extract(epoch FROM clock_timestamp() - v_started) * 1000;
    PERFORM setval('@.next_look', v_started_ms + greatest(p_every_ms, 20 * v_took_ms));
END $fn$;

-- Forget de-duplication ids whose time is over. From where the last call ended, as what it has removed
-- may be in its index still; from the beginning, for what was committed late, once an hour.
CREATE FUNCTION @.prune() RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
    v_now timestamptz := @.now();
    v_now_ms bigint := extract(epoch FROM v_now) * 1000;
    v_from_ms bigint := pg_sequence_last_value('@.pruned_until');
    v_count int;
BEGIN
    IF v_now_ms / 3600000 <> v_from_ms / 3600000 THEN v_from_ms := 0; END IF;
    DELETE FROM @.deduplication WHERE (queue, key) IN (
        SELECT queue, key FROM @.deduplication
        WHERE until <= v_now AND until >= to_timestamp(v_from_ms / 1000.0)
        ORDER BY until LIMIT 10000 FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count < 10000 THEN PERFORM setval('@.pruned_until', greatest(v_now_ms, 0)); END IF;
END $fn$;
