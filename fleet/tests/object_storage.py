"""The files of a small fleet on object storage (a server of S3 on loopback), read by DuckDB and by ClickHouse.

object_storage.py PROGRAMS: PROGRAMS is target/release. ClickHouse is its engine embedded (chdb), the storage is moto.
"""

import datetime
import decimal
import glob
import json
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

from sql import questions, read, statements

PROGRAMS = os.path.abspath(sys.argv[1])
KEY = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}


def without_limits(questions):
    """Of rows that are alike any may be beyond a limit."""
    return {number: re.sub(r"LIMIT \d+", "", text) for number, text in questions.items()}


QUESTIONS = without_limits(questions())
OF_CLICKHOUSE = without_limits(questions("clickhouse-questions.sql"))


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


def ask_clickhouse(place):
    """Returns the answers of ClickHouse, with what takes the place of `file('` in its views."""
    engine = session.Session()
    for text in statements(read("clickhouse.sql") + read("clickhouse-facts.sql")):
        engine.query(place(text))
    answers = {}
    for number, text in OF_CLICKHOUSE.items():
        lines = engine.query(place(statements(text)[0]), "JSONCompactEachRow").data()
        answers[number] = [json.loads(line) for line in lines.splitlines()]
    engine.close()
    return answers


def in_bucket(url):
    """What docs/fleet.md says: the function s3 in the place of file."""
    def replaced(text):
        return re.sub(r"file\('([^']*)', 'Parquet'\)", rf"s3('{url}/lake/\1', 'key', 'secret', 'Parquet')", text)
    return replaced


def is_alike(value, other):
    """Whether a value of DuckDB is one of ClickHouse, which rounds a half to the even neighbour."""
    if isinstance(value, list):
        return len(value) == len(other) and all(map(is_alike, value, other))
    if value is None or other is None:
        return value is other
    if isinstance(value, (int, float, decimal.Decimal)):
        return abs(float(value) - other) < 0.0101 or value == int(other)
    return str(value) == other


def is_same(number, rows, found):
    def key(row):
        return [str(cell) for cell in exact(number, row) if isinstance(cell, (str, datetime.date, list))]

    # What is rounded may differ; rows of the same names are told apart by their counts.
    rows, found = [
        sorted(map(list, all), key=lambda row: (key(row), [cell for cell in row if isinstance(cell, int)]))
        for all in (rows, found)
    ]
    return len(rows) == len(found) and all(
        len(row) == len(others) and all(map(is_alike, exact(number, row), exact(number, others)))
        for row, others in zip(rows, found)
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
    os.chdir(lake)
    assert len(QUESTIONS) == 12 and QUESTIONS.keys() == OF_CLICKHOUSE.keys()
    for title, place in [("a directory", lambda text: text), (url, in_bucket(url))]:
        for number, rows in ask_clickhouse(place).items():
            assert QUESTIONS[number].split("\n")[0] == OF_CLICKHOUSE[number].split("\n")[0], number
            assert is_same(number, local[number], rows), (number, sorted(map(str, rows))[:5], sorted(map(str, local[number]))[:5])
            assert not is_same(number, local[number][1:], rows), "a row that is missing is noticed"
            assert not is_same(number, [(row[0], *row[1:-1], "x") for row in local[number]], rows), "a cell that is wrong is noticed"
        print("ClickHouse: twelve questions, the same answers from", title)
finally:
    server.stop()
    shutil.rmtree(base)
