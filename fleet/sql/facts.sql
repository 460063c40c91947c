-- Views over facts of machines, which are there where `--facts` or `--fact` was used. Run it after views.sql.

CREATE OR REPLACE VIEW facts AS
SELECT * FROM read_parquet('facts/*/*.parquet', hive_partitioning = true, hive_types = {'day': DATE});

-- The moments at which a fact of a machine changed, such as an update of a package or of the kernel.
CREATE OR REPLACE VIEW changes AS
SELECT * FROM (
    SELECT machine, name, value AS new_value, day AS changed,
        lag(value) OVER (PARTITION BY machine, name ORDER BY seen) AS old_value
    FROM facts
) WHERE old_value IS NOT NULL AND old_value <> new_value;

-- The model of each disk of each machine: the newest that was seen.
CREATE OR REPLACE VIEW disks AS
SELECT machine, substr(name, 6) AS device, arg_max(value, seen) AS model
FROM facts WHERE starts_with(name, 'disk:') GROUP BY ALL;
