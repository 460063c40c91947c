-- Twelve questions. Each begins with a line "-- NUMBER. QUESTION" and is one statement over the views of views.sql;
-- the second and the third need those of facts.sql, too.

-- 1. Which programs hang most, for each hour in which they were followed?
SELECT program, sum(hangs) AS hangs, round(sum(hangs) / sum(hours), 3) AS per_hour,
    round(sum(hung_s) / sum(hours), 2) AS hung_s_per_hour, count(DISTINCT machine) AS machines
FROM program_days GROUP BY program ORDER BY per_hour DESC;

-- 2. Which update made Files (nautilus) hang?
WITH days AS (SELECT * FROM program_days WHERE program = 'nautilus'),
rates AS (
    SELECT c.name, c.old_value, c.new_value,
        count(DISTINCT c.machine) AS machines,
        sum(d.hangs) FILTER (d.day < c.changed) AS hangs_before,
        sum(d.hours) FILTER (d.day < c.changed) AS hours_before,
        sum(d.hangs) FILTER (d.day >= c.changed) AS hangs_after,
        sum(d.hours) FILTER (d.day >= c.changed) AS hours_after
    FROM changes c JOIN days d USING (machine) GROUP BY ALL
)
SELECT name, old_value, new_value, machines,
    round(hangs_before / hours_before, 3) AS per_hour_before,
    round(hangs_after / hours_after, 3) AS per_hour_after,
    round((hangs_after / hours_after) / nullif(hangs_before / hours_before, 0), 2) AS ratio
FROM rates WHERE hours_before > 0 AND hours_after > 0 ORDER BY ratio DESC NULLS LAST;

-- 3. On which models of disks do programs wait longest?
SELECT model, count(*) AS hangs, count(DISTINCT machine) AS machines,
    round(quantile_cont(length_us, 0.5) / 1e3, 0) AS median_ms,
    round(quantile_cont(length_us, 0.95) / 1e3, 0) AS p95_ms
FROM hangs JOIN disks USING (machine, device)
WHERE cause IN ('sync', 'file-data', 'file-names', 'page-fault')
GROUP BY model ORDER BY median_ms DESC;

-- 4. Which library holds the functions to blame?
SELECT module, sum(n) AS hangs, round(sum(hung_us) / 3.6e9, 2) AS hung_hours,
    count(DISTINCT program) AS programs, count(DISTINCT machine) AS machines
FROM (
    SELECT module, program, machine, count(*) AS n, sum(length_us) AS hung_us
    FROM hangs WHERE module IS NOT NULL GROUP BY module, program, machine
) GROUP BY module ORDER BY hung_hours DESC LIMIT 20;

-- 5. Which stacks are new in the last seven days, and on how many machines?
WITH seen AS (
    SELECT stack, min(day) AS first_day FROM hangs WHERE stack IS NOT NULL GROUP BY stack
),
new AS (
    SELECT stack, any_value(program) AS program, any_value(first_day) AS first_day,
        count(*) AS hangs, count(DISTINCT machine) AS machines
    FROM hangs JOIN seen USING (stack)
    WHERE first_day > (SELECT max(day) - 7 FROM hangs)
    GROUP BY stack ORDER BY machines DESC, hangs DESC LIMIT 20
)
SELECT program, first_day, hangs, machines,
    list_transform(frames[1:4], lambda frame: frame.function) AS innermost
FROM new JOIN (
    SELECT stack, any_value(frames) AS frames FROM read_parquet('stacks/*.parquet')
    WHERE stack IN (SELECT stack FROM new) GROUP BY stack
) USING (stack)
ORDER BY machines DESC, hangs DESC;

-- 6. What do the programs wait for?
SELECT cause, count(*) AS hangs, round(sum(length_us) / 3.6e9, 2) AS hung_hours,
    round(100 * sum(length_us) / sum(sum(length_us)) OVER (), 1) AS percent_of_time
FROM hangs GROUP BY cause ORDER BY hung_hours DESC;

-- 7. Which files freeze programs on most machines?
SELECT regexp_replace(object, '^/home/[^/]*', '~') AS file, sum(n) AS hangs,
    count(DISTINCT machine) AS machines, round(sum(hung_us) / 3.6e9, 2) AS hung_hours
FROM (
    SELECT object, machine, count(*) AS n, sum(length_us) AS hung_us
    FROM hangs WHERE object_kind = 'file' GROUP BY object, machine
) GROUP BY file ORDER BY machines DESC, hung_hours DESC LIMIT 20;

-- 8. Which other programs do they wait for?
SELECT waited_for, program, count(*) AS hangs, round(sum(length_us) / 3.6e9, 2) AS hung_hours
FROM hangs WHERE waited_for IS NOT NULL GROUP BY waited_for, program ORDER BY hung_hours DESC LIMIT 20;

-- 9. Which machines are much worse than the others?
WITH rates AS (
    SELECT machine, sum(hangs) / sum(hours) AS per_hour FROM program_days GROUP BY machine
)
SELECT machine, round(per_hour, 3) AS per_hour,
    round(per_hour / (SELECT median(per_hour) FROM rates), 2) AS times_median
FROM rates ORDER BY per_hour DESC LIMIT 20;

-- 10. Does it get better or worse, day by day?
SELECT day, sum(hangs) AS hangs, round(sum(hangs) / sum(hours), 3) AS per_hour,
    count(DISTINCT machine) AS machines
FROM program_days GROUP BY day ORDER BY day;

-- 11. How long are the hangs of each program?
SELECT program, count(*) AS hangs, round(approx_quantile(length_us, 0.5) / 1e3, 0) AS median_ms,
    round(approx_quantile(length_us, 0.99) / 1e3, 0) AS p99_ms,
    round(max(length_us) / 1e6, 1) AS longest_s, count(*) FILTER (length_us > 2000000) AS over_2_s
FROM hangs GROUP BY program ORDER BY p99_ms DESC;

-- 12. Is it the program, or a machine under pressure?
SELECT program, count(*) AS hangs,
    round(100 * avg((processors_pressure >= 2000)::INT), 1) AS percent_processors_busy,
    round(100 * avg((disks_pressure >= 2000)::INT), 1) AS percent_disks_busy,
    round(100 * avg((memory_pressure >= 1000)::INT), 1) AS percent_memory_short
FROM hangs GROUP BY program ORDER BY hangs DESC;
