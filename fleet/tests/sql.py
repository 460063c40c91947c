"""The files of fleet/sql."""

import os
import re

SQL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql")


def read(name):
    with open(os.path.join(SQL, name)) as file:
        return file.read()


def questions(name="questions.sql"):
    """The questions by their numbers."""
    parts = re.split(r"(?m)^(?=-- \d+\. )", read(name))[1:]
    return {int(part.split()[1].rstrip(".")): part for part in parts}


def statements(text):
    """The statements of a file, without comments: for engines that take one at a time."""
    text = re.sub(r"(?m)^--.*\n", "", text)
    return [part.strip() for part in text.split(";") if part.strip()]
