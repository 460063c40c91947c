-- Joins the files of all machines into few large ones, which are read many times as fast. Run it where the directory `inbox` is,
-- which the machines' files are copied to; it makes the directory `lake`. Once for each day:
-- SET VARIABLE day = '2026-11-24';
-- Again for the same day it replaces the files of that day. A hang that came twice is kept once, in its longest state.

COPY (
    SELECT * FROM read_parquet('inbox/hangs/day=' || getvariable('day') || '/*.parquet', union_by_name = true, hive_partitioning = true)
    QUALIFY row_number() OVER (PARTITION BY id ORDER BY length_us DESC, goes_on) = 1
    ORDER BY program, machine, started
) TO 'lake/hangs' (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 9, ROW_GROUP_SIZE 400000,
    PARTITION_BY (day), FILENAME_PATTERN 'merged_{i}', OVERWRITE_OR_IGNORE);

COPY (
    SELECT * FROM read_parquet('inbox/watched/day=' || getvariable('day') || '/*.parquet', hive_partitioning = true)
    ORDER BY program, machine
) TO 'lake/watched' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day), FILENAME_PATTERN 'merged_{i}', OVERWRITE_OR_IGNORE);
