-- The twelve questions of questions.sql for ClickHouse, over the views of clickhouse.sql; the second and the third need those of
-- clickhouse-facts.sql, too.

-- 1. Which programs hang most, for each hour in which they were followed?
SELECT program, sum(d.hangs) AS hangs, round(sum(d.hangs) / sum(hours), 3) AS per_hour,
    round(sum(hung_s) / sum(hours), 2) AS hung_s_per_hour, uniqExact(machine) AS machines
FROM program_days AS d GROUP BY program ORDER BY per_hour DESC;

-- 2. Which update made Files (nautilus) hang?
WITH rates AS (
    SELECT c.name AS name, c.old_value AS old_value, c.new_value AS new_value,
        uniqExact(c.machine) AS machines,
        sumIf(d.hangs, d.day < c.changed) AS hangs_before,
        sumIf(d.hours, d.day < c.changed) AS hours_before,
        sumIf(d.hangs, d.day >= c.changed) AS hangs_after,
        sumIf(d.hours, d.day >= c.changed) AS hours_after
    FROM changes AS c
    JOIN (SELECT * FROM program_days WHERE program = 'nautilus') AS d ON d.machine = c.machine
    GROUP BY name, old_value, new_value
)
SELECT name, old_value, new_value, machines,
    round(hangs_before / hours_before, 3) AS per_hour_before,
    round(hangs_after / hours_after, 3) AS per_hour_after,
    round((hangs_after / hours_after) / nullIf(hangs_before / hours_before, 0), 2) AS ratio
FROM rates WHERE hours_before > 0 AND hours_after > 0 ORDER BY ratio DESC NULLS LAST;

-- 3. On which models of disks do programs wait longest?
SELECT model, count() AS hangs, uniqExact(h.machine) AS machines,
    round(quantileExactInclusive(0.5)(length_us) / 1e3, 0) AS median_ms,
    round(quantileExactInclusive(0.95)(length_us) / 1e3, 0) AS p95_ms
FROM hangs AS h JOIN disks AS d ON h.machine = d.machine AND h.device = d.device
WHERE cause IN ('sync', 'file-data', 'file-names', 'page-fault')
GROUP BY model ORDER BY median_ms DESC;

-- 4. Which library holds the functions to blame?
SELECT module, sum(n) AS hangs, round(sum(hung_us) / 3.6e9, 2) AS hung_hours,
    uniqExact(program) AS programs, uniqExact(machine) AS machines
FROM (
    SELECT module, program, machine, count() AS n, sum(length_us) AS hung_us
    FROM hangs WHERE module IS NOT NULL GROUP BY module, program, machine
) GROUP BY module ORDER BY hung_hours DESC LIMIT 20;

-- 5. Which stacks are new in the last seven days, and on how many machines?
WITH new AS (
    SELECT stack, any(h.program) AS program, min(h.day) AS first_day, count() AS hangs,
        uniqExact(h.machine) AS machines
    FROM hangs AS h WHERE stack IS NOT NULL GROUP BY stack
    HAVING first_day > (SELECT max(day) - 7 FROM hangs)
    ORDER BY machines DESC, hangs DESC LIMIT 20
)
SELECT new.program AS program, new.first_day AS first_day, new.hangs AS hangs, new.machines AS machines,
    arrayMap(frame -> tupleElement(frame, 'function'), arraySlice(known.frames, 1, 4)) AS innermost
FROM new JOIN (
    SELECT stack, any(frames) AS frames FROM file('stacks/*.parquet', 'Parquet')
    WHERE stack IN (SELECT stack FROM new) GROUP BY stack
) AS known ON new.stack = known.stack
ORDER BY machines DESC, hangs DESC;

-- 6. What do the programs wait for?
SELECT cause, count() AS hangs, round(sum(length_us) / 3.6e9, 2) AS hung_hours,
    round(100 * sum(length_us) / sum(sum(length_us)) OVER (), 1) AS percent_of_time
FROM hangs GROUP BY cause ORDER BY hung_hours DESC;

-- 7. Which files freeze programs on most machines?
SELECT replaceRegexpOne(assumeNotNull(object), '^/home/[^/]*', '~') AS file, sum(n) AS hangs,
    uniqExact(machine) AS machines, round(sum(hung_us) / 3.6e9, 2) AS hung_hours
FROM (
    SELECT object, machine, count() AS n, sum(length_us) AS hung_us
    FROM hangs WHERE object_kind = 'file' GROUP BY object, machine
) GROUP BY file ORDER BY machines DESC, hung_hours DESC LIMIT 20;

-- 8. Which other programs do they wait for?
SELECT waited_for, program, count() AS hangs, round(sum(length_us) / 3.6e9, 2) AS hung_hours
FROM hangs WHERE waited_for IS NOT NULL GROUP BY waited_for, program ORDER BY hung_hours DESC LIMIT 20;

-- 9. Which machines are much worse than the others?
WITH rates AS (
    SELECT machine, sum(hangs) / sum(hours) AS per_hour FROM program_days GROUP BY machine
)
SELECT machine, round(r.per_hour, 3) AS per_hour,
    round(r.per_hour / (SELECT quantileExactInclusive(0.5)(per_hour) FROM rates), 2) AS times_median
FROM rates AS r ORDER BY r.per_hour DESC LIMIT 20;

-- 10. Does it get better or worse, day by day?
SELECT day, sum(d.hangs) AS hangs, round(sum(d.hangs) / sum(hours), 3) AS per_hour,
    uniqExact(machine) AS machines
FROM program_days AS d GROUP BY day ORDER BY day;

-- 11. How long are the hangs of each program?
SELECT program, count() AS hangs, round(quantileTDigest(0.5)(length_us) / 1e3, 0) AS median_ms,
    round(quantileTDigest(0.99)(length_us) / 1e3, 0) AS p99_ms,
    round(max(length_us) / 1e6, 1) AS longest_s, countIf(length_us > 2000000) AS over_2_s
FROM hangs GROUP BY program ORDER BY p99_ms DESC;

-- 12. Is it the program, or a machine under pressure?
SELECT program, count() AS hangs,
    round(100 * avg(processors_pressure >= 2000), 1) AS percent_processors_busy,
    round(100 * avg(disks_pressure >= 2000), 1) AS percent_disks_busy,
    round(100 * avg(memory_pressure >= 1000), 1) AS percent_memory_short
FROM hangs GROUP BY program ORDER BY hangs DESC;
