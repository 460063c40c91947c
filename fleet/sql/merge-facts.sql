-- Joins the facts of all machines, where there are any. Run it after merge.sql, in the same directory.

COPY (
    SELECT * FROM read_parquet('inbox/facts/*/*.parquet', hive_partitioning = true) ORDER BY name, machine, seen
) TO 'lake/facts' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day), FILENAME_PATTERN 'merged_{i}', OVERWRITE_OR_IGNORE);
