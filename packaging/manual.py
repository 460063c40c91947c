"""Turns what lowdown makes of a page of docs/ into a manual page of section 5.

Reads the page from standard input and writes to standard output; arguments: NAME ABOUT "RELATED(1) ..." DATE VERSION.
"""

import re
import sys

WIDEST = 79


def wrapped(line):
    """Divides a line of text at spaces; no line begins as a request would."""
    parts = [""]
    for word in line.split(" "):
        last = parts[-1]
        if last and len(last) + 1 + len(word) > WIDEST and word and word[0] not in ".'":
            parts.append(word)
        else:
            parts[-1] = f"{last} {word}" if last else word
    return parts


def main():
    name, about, related, date, version = sys.argv[1:]
    lines = sys.stdin.read().splitlines()
    escaped = name.replace("-", "\\-")
    out = [
        f'.TH {name.upper()} 5 {date} "unjank {version}" "unjank manual"',
        ".SH NAME",
        f"{escaped} \\- {about}",
        ".SH DESCRIPTION",
    ]
    is_fixed, at = False, 0
    has_title = False
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        # The fixed-width font under the name that old and new formatters know.
        line = line.replace("\\fC", "\\fB").replace("\\f(CR", "\\fB").replace("\\f(CB", "\\fB").replace("\\fP", "\\fR")
        # A link within the documentation is its text.
        line = re.sub(r" <\\fI[^<>]*\\fR>", "", line)
        if line.startswith('.\\"') or line.startswith(".TH"):
            continue
        if line in (".SH", ".SS") and at < len(lines):
            title = lines[at].strip()
            at += 1
            if not has_title:
                # The title of the page is its name.
                has_title = True
                continue
            title = re.sub(r"\\f.|\\f\(..", "", title).replace('"', "")
            out.append(f'.SH "{title.upper()}"' if line == ".SS" else f'.SS "{title}"')
            continue
        if line == ".EX":
            is_fixed = True
        elif line == ".EE":
            is_fixed = False
        if line == "" and not is_fixed:
            continue
        if is_fixed or line.startswith((".", "'")) or len(line) <= WIDEST:
            out.append(line)
        else:
            out.extend(wrapped(line))
    # A paragraph that is followed by a section or by another one is nothing.
    kept = []
    for at, line in enumerate(out):
        following = out[at + 1] if at + 1 < len(out) else ""
        if line in (".LP", ".PP") and (following.startswith((".S", ".LP", ".PP")) or not following):
            continue
        if line in (".LP", ".PP") and kept and kept[-1].startswith(".S"):
            continue
        # Columns are narrow: their text is not stretched to both edges.
        if line.startswith(".TS"):
            kept.append(".na")
        kept.append(line)
        if line == ".TE":
            kept.append(".ad")
    kept.append('.SH "SEE ALSO"')
    pages = sorted(related.split())
    for at, page in enumerate(pages):
        title, section = page.rstrip(")").split("(")
        comma = "," if at + 1 < len(pages) else ""
        title = title.replace("-", "\\-")
        kept.append(f".BR {title} ({section}){comma}")
    if any(line == ".TS" or line.startswith(".TS") for line in kept):
        kept.insert(0, "'\\\" t")
    sys.stdout.write("\n".join(kept) + "\n")


main()
