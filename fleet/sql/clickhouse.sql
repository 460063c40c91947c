-- The views for ClickHouse, over a directory that `unjank-export parquet` wrote, or merge.sql did. Run it in that directory with
-- clickhouse-local; on a server the directory is below its user_files_path. For files in a bucket put the function s3 in the place of
-- file: docs/fleet.md has the command.

CREATE OR REPLACE VIEW hangs AS
SELECT * FROM file('hangs/day=*/*.parquet', 'Parquet')
SETTINGS use_hive_partitioning = 1, schema_inference_mode = 'union';

CREATE OR REPLACE VIEW stacks AS
SELECT stack, any(blamed) AS blamed, any(frames) AS frames
FROM file('stacks/*.parquet', 'Parquet') GROUP BY stack;

-- For how long programs were followed: without it a count of hangs says nothing. The rows without a program are the recorder itself.
CREATE OR REPLACE VIEW watched AS
SELECT * FROM file('watched/day=*/*.parquet', 'Parquet')
SETTINGS use_hive_partitioning = 1, schema_inference_mode = 'union';

-- Hangs and hours of each machine, program and day: what most rates are made of.
CREATE OR REPLACE VIEW program_days AS
SELECT w.day AS day, w.machine AS machine, w.program AS program,
    ifNull(h.hangs, 0) AS hangs, ifNull(h.hung_s, 0) AS hung_s, w.hours AS hours
FROM (
    SELECT day, machine, assumeNotNull(program) AS program, sum(watched_us) / 3.6e9 AS hours
    FROM watched WHERE watched.program IS NOT NULL GROUP BY day, machine, program
) AS w LEFT JOIN (
    SELECT day, machine, program, count() AS hangs, sum(length_us) / 1e6 AS hung_s
    FROM hangs GROUP BY day, machine, program
) AS h ON w.day = h.day AND w.machine = h.machine AND w.program = h.program;
