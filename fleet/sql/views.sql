-- Views over a directory that `unjank-export parquet` wrote, or merge.sql did. Run DuckDB in that directory, or say where it is:
-- SET file_search_path = '/srv/hangs-lake';

CREATE OR REPLACE VIEW hangs AS
SELECT * FROM read_parquet('hangs/*/*.parquet', union_by_name = true, hive_partitioning = true, hive_types = {'day': DATE});

CREATE OR REPLACE VIEW stacks AS
SELECT stack, any_value(blamed) AS blamed, any_value(frames) AS frames
FROM read_parquet('stacks/*.parquet') GROUP BY stack;

-- For how long programs were followed: without it a count of hangs says nothing. The rows without a program are the recorder itself.
CREATE OR REPLACE VIEW watched AS
SELECT * FROM read_parquet('watched/*/*.parquet', hive_partitioning = true, hive_types = {'day': DATE});

-- Hangs and hours of each machine, program and day: what most rates are made of.
CREATE OR REPLACE VIEW program_days AS
SELECT day, machine, program, coalesce(hangs, 0) AS hangs, coalesce(hung_s, 0) AS hung_s, hours
FROM (
    SELECT day, machine, program, sum(watched_us) / 3.6e9 AS hours
    FROM watched WHERE program IS NOT NULL GROUP BY ALL
) LEFT JOIN (
    SELECT day, machine, program, count(*) AS hangs, sum(length_us) / 1e6 AS hung_s
    FROM hangs GROUP BY ALL
) USING (day, machine, program);
