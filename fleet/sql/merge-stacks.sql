-- Joins the stacks of all machines, each once. Run it after merge.sql, in the same directory.

COPY (
    SELECT stack, any_value(blamed) AS blamed, any_value(frames) AS frames
    FROM read_parquet('inbox/stacks/*.parquet') GROUP BY stack ORDER BY stack
) TO 'lake/stacks/merged.parquet' (FORMAT parquet, COMPRESSION zstd);
