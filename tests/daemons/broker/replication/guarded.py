"""Members of a replica set that require signatures of each other."""

from pathlib import Path

ACCOUNTS = """\
accounts:
  - accessKey: the-slave
    secretKey: secret-of-slave
    admin: true
  - accessKey: somebody
    secretKey: secret-of-somebody
    admin: false
    defaultTopicPerm: DENY
"""


def key_file(folder: Path, name: str, secret: str) -> str:
    path = folder / f"{name}.yml"
    path.write_text(f"accessKey: {name}\nsecretKey: {secret}\n")
    return str(path)
