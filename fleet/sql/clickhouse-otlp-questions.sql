-- Three of the twelve questions for what a Collector has sent on to ClickHouse as docs/fleet.md has it, with `otlp --metrics` and facts:
-- events in the table hangs, metrics in otel_metrics_sum. What came twice counts once.

-- 2. With which version of Files (nautilus) does it hang?
WITH points AS (
    SELECT ResourceAttributes['unjank.fact.nautilus'] AS version, StartTimeUnix, Value,
        lagInFrame(Value) OVER times AS value_before, lagInFrame(StartTimeUnix) OVER times AS start_before,
        lagInFrame(TimeUnix) OVER times AS time_before
    FROM otel_metrics_sum
    WHERE MetricName = 'unjank_watched_seconds_total' AND Attributes['program'] = 'nautilus'
    WINDOW times AS (
        PARTITION BY ResourceAttributes['service.instance.id'] ORDER BY TimeUnix, Value
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
),
hours AS (
    -- A sum that begins after the point before has nothing of what was counted before. One that begins earlier than the sum before is
    -- of a new run, which counts again what is stored: what of it is new is not known. Else the store has dropped its oldest records.
    SELECT version, sum(multiIf(StartTimeUnix >= time_before, Value, StartTimeUnix < start_before, 0,
        greatest(Value - value_before, 0))) / 3600 AS hours
    FROM points GROUP BY version
),
counts AS (
    SELECT ResourceAttributes['unjank.fact.nautilus'] AS version, uniqExact(LogAttributes['log.record.uid']) AS hangs
    FROM hangs WHERE LogAttributes['process.executable.name'] = 'nautilus' GROUP BY version
)
SELECT h.version AS version, c.hangs AS hangs, h.hours AS hours, round(c.hangs / h.hours, 3) AS per_hour
FROM hours AS h LEFT JOIN counts AS c ON h.version = c.version
WHERE h.hours > 0 ORDER BY per_hour DESC;

-- 3. On which models of disks do programs wait longest?
SELECT model, count() AS hangs, uniqExact(machine) AS machines,
    round(quantileExactInclusive(0.5)(length_ns) / 1e6, 0) AS median_ms,
    round(quantileExactInclusive(0.95)(length_ns) / 1e6, 0) AS p95_ms
FROM (
    SELECT LogAttributes['unjank.hang.disk_model'] AS model, ResourceAttributes['host.id'] AS machine,
        toUInt64(LogAttributes['unjank.hang.length_ns']) AS length_ns
    FROM hangs
    WHERE model <> '' AND LogAttributes['unjank.hang.cause'] IN ('sync', 'file-data', 'file-names', 'page-fault')
    LIMIT 1 BY LogAttributes['log.record.uid']
) GROUP BY model ORDER BY median_ms DESC;

-- 4. Which library holds the functions to blame?
SELECT module, count() AS hangs, round(sum(length_ns) / 3.6e12, 2) AS hung_hours,
    uniqExact(program) AS programs, uniqExact(machine) AS machines
FROM (
    SELECT LogAttributes['unjank.hang.module'] AS module, ResourceAttributes['host.id'] AS machine,
        LogAttributes['process.executable.name'] AS program,
        toUInt64(LogAttributes['unjank.hang.length_ns']) AS length_ns
    FROM hangs WHERE module <> '' LIMIT 1 BY LogAttributes['log.record.uid']
) GROUP BY module ORDER BY hung_hours DESC, hangs DESC LIMIT 20;
