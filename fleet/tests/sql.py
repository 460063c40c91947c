"""The files of fleet/sql."""

import os
import re

SQL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql")


def read(name):
    with open(os.path.join(SQL, name)) as file:
        return file.read()


def questions():
    """The questions by their numbers."""
    parts = re.split(r"(?m)^(?=-- \d+\. )", read("questions.sql"))[1:]
    return {int(part.split()[1].rstrip(".")): part for part in parts}
