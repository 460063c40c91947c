"""The files of a small fleet on object storage (a server of S3 on loopback), read by DuckDB and by ClickHouse.

object_storage.py PROGRAMS: PROGRAMS is target/release. ClickHouse is its engine embedded (chdb), the storage is moto.
"""

import csv
import glob
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile

import boto3
import duckdb
import s3fs
from chdb import session
from moto.server import ThreadedMotoServer

from sql import questions, read

PROGRAMS = os.path.abspath(sys.argv[1])
KEY = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
# Of rows that are alike any may be beyond a limit.
QUESTIONS = {number: re.sub(r"LIMIT \d+", "", text) for number, text in questions().items()}
# These are asked of ClickHouse as they are; the others use functions of DuckDB's.
OF_BOTH = [1, 4, 6, 8, 10]


def views(place):
    """The views of DuckDB, over another place than the directory in which it runs."""
    text = read("views.sql") + read("facts.sql")
    return re.sub(r"'(hangs|stacks|watched|facts)/", rf"'{place}/\1/", text)


def ask_duckdb(connection, place):
    connection.execute(views(place))
    return {
        number: connection.execute(text.replace("'stacks/", f"'{place}/stacks/")).fetchall()
        for number, text in QUESTIONS.items()
    }


def exact(number, row):
    """A row without what DuckDB estimates, which depends on the order of the files."""
    return row[:2] + row[4:] if number == 11 else row


def upload(directory, url):
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **KEY)
    client.create_bucket(Bucket="lake")
    files = glob.glob("**/*.parquet", root_dir=directory, recursive=True)
    for path in files:
        client.upload_file(os.path.join(directory, path), "lake", path)
    return len(files)


def ask_clickhouse(url):
    """Returns the answers of ClickHouse, as texts."""
    engine = session.Session()
    for table in ["hangs", "watched"]:
        place = f"s3('{url}/lake/{table}/day=*/*.parquet', 'key', 'secret', 'Parquet')"
        # It takes the day from the names of the directories by itself.
        engine.query(f"CREATE VIEW {table} AS SELECT * FROM {place}")
    program_days = re.search(r"CREATE OR REPLACE VIEW program_days.*?;", read("views.sql"), re.S)[0]
    # As other engines take SQL.
    for name in ["joined_subquery_requires_alias = 0", "join_use_nulls = 1", "prefer_column_name_to_alias = 1"]:
        engine.query("SET " + name)
    engine.query(program_days)
    answers = {
        number: engine.query(re.sub(r"^--.*\n", "", QUESTIONS[number]), "CSV").data()
        for number in OF_BOTH
    }
    engine.close()
    return answers


def is_same(rows, answers):
    """Whether the rows of DuckDB are those of ClickHouse, which rounds a half to the even neighbour."""
    def cells(text):
        return next(csv.reader([text]))

    def is_alike(value, text):
        if isinstance(value, (int, float)):
            return abs(value - float(text)) < 0.0101 or value == int(float(text))
        return str(value) == text

    rows = sorted(rows, key=lambda row: [str(cell) for cell in row if not isinstance(cell, float)])
    found = [cells(line) for line in answers.splitlines()]
    kinds = [isinstance(cell, float) for cell in rows[0]]
    found.sort(key=lambda row: [cell for cell, is_float in zip(row, kinds) if not is_float])
    return len(rows) == len(found) and all(
        len(row) == len(texts) and all(map(is_alike, row, texts)) for row, texts in zip(rows, found)
    )


logging.getLogger("werkzeug").setLevel(logging.ERROR)
base = tempfile.mkdtemp(prefix="unjank-storage.")
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
try:
    lake = os.path.join(base, "lake")
    simulated = subprocess.run(
        [PROGRAMS + "/simulate-fleet", "--to", lake, "--first", "0", "--last", "20"]
        + ["--days", "8", "--hangs", "20"],
        check=True, capture_output=True, text=True,
    )
    server.start()
    url = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
    print(upload(lake, url), "files,", simulated.stdout.strip())
    connection = duckdb.connect()
    local = ask_duckdb(connection, lake)
    storage = s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=url)
    connection.register_filesystem(storage)
    remote = ask_duckdb(connection, "s3://lake")
    for number, rows in local.items():
        of = [sorted(str(exact(number, row)) for row in rows) for rows in (rows, remote[number])]
        assert rows and of[0] == of[1], number
    print("DuckDB: twelve questions, the same answers from", url)
    for number, text in ask_clickhouse(url).items():
        assert is_same(local[number], text), (number, text[:500], local[number][:5])
        assert not is_same(local[number][1:], text), "a row that is missing is noticed"
    print("ClickHouse: the same answers to questions", *OF_BOTH)
finally:
    server.stop()
    shutil.rmtree(base)
