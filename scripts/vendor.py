"""Fetches the files that vendor.toml names, with `npm pack`, and writes their hashes.

`python -m scripts.vendor`. To take a newer version, change it in vendor.toml first. Nothing is built.
"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "orchestrator" / "web" / "static" / "vendor", ROOT / "tests" / "web" / "vendor")


def main() -> None:
    for folder in FOLDERS:
        named = (folder / "vendor.toml").read_text(encoding="utf-8")
        for each in tomllib.loads(named)["file"]:
            content = fetched(each["package"], each["version"], each["file"])
            (folder / each["path"]).write_bytes(content)
            named = named.replace(each["sha256"], hashlib.sha256(content).hexdigest())
            print(folder.name, each["path"], each["package"], each["version"])
        (folder / "vendor.toml").write_text(named, encoding="utf-8")


def fetched(package: str, version: str, file: str) -> bytes:
    """A file of an npm package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True, capture_output=True)
        (archive,) = Path(folder).iterdir()
        with tarfile.open(archive) as packed:
            found = packed.extractfile(f"package/{file}")
            assert found is not None, f"{package}@{version} has no {file}"
            return found.read()


if __name__ == "__main__":
    main()
