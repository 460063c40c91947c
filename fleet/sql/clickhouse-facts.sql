-- The views for ClickHouse over facts of machines, which are there where `--facts` or `--fact` was used. Run it after clickhouse.sql.

CREATE OR REPLACE VIEW facts AS
SELECT * FROM file('facts/day=*/*.parquet', 'Parquet')
SETTINGS use_hive_partitioning = 1, schema_inference_mode = 'union';

-- The moments at which a fact of a machine changed, such as an update of a package or of the kernel.
CREATE OR REPLACE VIEW changes AS
SELECT * FROM (
    SELECT machine, name, value AS new_value, day AS changed,
        lagInFrame(toNullable(value)) OVER (
            PARTITION BY machine, name ORDER BY seen ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) AS old_value
    FROM facts
) WHERE old_value IS NOT NULL AND old_value <> new_value;

-- The model of each disk of each machine: the newest that was seen.
CREATE OR REPLACE VIEW disks AS
SELECT machine, substring(name, 6) AS device, argMax(value, seen) AS model
FROM facts WHERE startsWith(name, 'disk:') GROUP BY machine, device;
