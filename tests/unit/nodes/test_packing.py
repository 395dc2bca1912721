"""Packing code: the same files are the same bytes, arrive as they were, and nothing else travels."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.nodes import packing
from orchestrator.nodes.packing import contents, pack
from orchestrator.nodes.unpacking import code_key, extract, unpacked
from trainers.objects.folder import FolderStore

NAMES = st.text(
    st.characters(blacklist_characters="/\x00", blacklist_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda name: name not in (".", "..", *packing.IGNORED, packing.IGNORE_FILE) and len(name.encode()) < 200)
FILES = st.tuples(st.binary(max_size=200), st.booleans())
TREES = st.recursive(
    st.dictionaries(NAMES, FILES, max_size=4),
    lambda inner: st.dictionaries(NAMES, st.one_of(FILES, inner), max_size=4),
    max_leaves=12,
)
Tree = dict[str, Any]


def _write(folder: Path, tree: Tree) -> None:
    for name, each in tree.items():
        if isinstance(each, dict):
            (folder / name).mkdir()
            _write(folder / name, each)
        else:
            data, runs = each
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o755 if runs else 0o644)


def _read(folder: Path) -> Tree:
    return {
        entry.name: _read(Path(entry.path))
        if entry.is_dir()
        else (Path(entry.path).read_bytes(), bool(entry.stat().st_mode & stat.S_IXUSR))
        for entry in os.scandir(folder)
    }


def test_however_deep_a_folder_is_it_is_packed(tmp_path: Path) -> None:
    deep = os.path.join(*["d"] * (sys.getrecursionlimit() + 100))
    os.makedirs(tmp_path / "d")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for _ in range(deep.count("/")):
            os.chdir("d")
            os.mkdir("d")
    try:
        assert max(contents(tmp_path).folders, key=len) == deep
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # too deep for shutil


def _packed(folder: Path) -> tuple[str, bytes]:
    target = io.BytesIO()
    return pack(contents(folder), target), target.getvalue()


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_a_tree_arrives_as_it_was_and_has_one_digest(tree: Tree) -> None:
    with TemporaryDirectory() as temporary:
        here, copy, there = (Path(temporary, name) for name in ("here", "copy", "there"))
        for folder in (here, copy):
            folder.mkdir()
            _write(folder, dict(reversed(tree.items())) if folder is copy else tree)
        os.utime(copy, (1, 1))
        for path in copy.rglob("*"):
            os.utime(path, (1, 1))
        digest, data = _packed(here)
        assert _packed(copy) == (digest, data), "times or the order of creation are in the archive"
        store = FolderStore(Path(temporary, "store"))
        store.put(code_key(digest), data)
        assert _read(unpacked(store, digest, there)) == tree


def test_names_that_are_not_text_arrive(tmp_path: Path) -> None:
    name = b"not \xff text"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / os.fsdecode(name)).write_bytes(b"data")
    _, data = _packed(tmp_path / "code")
    (tmp_path / "archive").write_bytes(data)
    (tmp_path / "out").mkdir()
    extract(tmp_path / "archive", tmp_path / "out")
    assert os.listdir(bytes(tmp_path / "out")) == [name]


def test_what_is_ignored_stays_behind(tmp_path: Path) -> None:
    for path in (
        *("main.py", "data/big.bin", "data/small.csv", "logs/deep/er/run.log", "keep.log", "src/model.py"),
        *(".git/config", "src/__pycache__/model.pyc", ".venv/bin/python", "state/tradewind.db"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / ".tradewindignore").write_text("# comment\n*.log\n!keep.log\n/data/*\n!data/small.csv\nlogs/\n")
    found = contents(tmp_path, without=[tmp_path / "state"])
    assert found.files == (".tradewindignore", "data/small.csv", "keep.log", "main.py", "src/model.py")
    assert found.folders == ("data", "src")


def test_the_ignored_folders_stay_behind_whatever_the_file_says(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("")
    (tmp_path / ".tradewindignore").write_text("!.git\n!.git/**\n")
    assert contents(tmp_path).files == (".tradewindignore",)


@pytest.mark.parametrize(
    ("path", "data", "like"),
    [
        *((path, b"x", True) for path in (".env", ".env.local", "deploy/server.PEM", "id_rsa", "keys/id_ed25519")),
        *((path, b"x", True) for path in (".aws/config", "a/.ssh/known_hosts", "credentials", "gcp-credentials.json")),
        *((path, b"x", True) for path in ("hf_token", "token", "secrets.yaml", ".netrc", "tls.key")),
        *((path, b"x", True) for path in ("secrets/prod.yaml", "openai_api_key.txt", "kubeconfig", "prod.tfvars")),
        ("notes.txt", b"-----BEGIN OPENSSH PRIVATE KEY-----\nabc", True),
        ("bag.txt", b"Bag Attributes\n-----BEGIN PRIVATE KEY-----\nabc", True),
        *((path, b"x", False) for path in (".env.example", "id_rsa.pub", "tokenizer.json", "token.py", "keys.py")),
        *((path, b"x", False) for path in ("environment.yml", "monkey.txt", "aws/config", "vocab/tokens.txt")),
        ("scan.py", b'PATTERN = "-----BEGIN PRIVATE KEY-----"', False),
    ],
)
def test_files_like_secrets_are_named(tmp_path: Path, path: str, data: bytes, like: bool) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(data)
    assert contents(tmp_path).secret_like == ((path,) if like else ())


def test_links_inside_stay_links_and_lead_to_the_same_file(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "pkg").mkdir(parents=True)
    (code / "pkg" / "file").write_text("content")
    (code / "pkg" / "relative").symlink_to("file")
    (code / "absolute").symlink_to(code / "pkg" / "file")
    (code / "around").symlink_to("../code/pkg/file")
    (code / "folder").symlink_to("pkg")
    (code / "broken").symlink_to("pkg/nothing")
    _, data = _packed(code)
    (tmp_path / "archive").write_bytes(data)
    out = tmp_path / "elsewhere" / "out"
    out.mkdir(parents=True)
    extract(tmp_path / "archive", out)
    code.rename(tmp_path / "gone")
    for link in ("pkg/relative", "absolute", "around", "folder/file"):
        assert (out / link).read_text() == "content"
    assert (out / "folder").is_symlink()
    assert os.readlink(out / "broken") == "pkg/nothing"


@pytest.mark.parametrize("target", ["../secret", "/etc/hostname", "inside/../../secret", "away"])
def test_a_link_that_leads_out_is_refused_by_name(tmp_path: Path, target: str) -> None:
    code = tmp_path / "code"
    (code / "inside").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (code / "away").symlink_to("/etc")
    if target != "away":
        (code / "away").unlink()
        (code / "link").symlink_to(target)
    with pytest.raises(UsageError, match="leads out of") as refused:
        contents(code)
    name = "away" if target == "away" else "link"
    assert str(code / name) in str(refused.value)
    assert f"/{name} in .tradewindignore" in refused.value.hint
    (code / ".tradewindignore").write_text(f"/{name}\n")
    assert contents(code).links == ()


def test_pipes_and_sockets_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match="pipe is not a regular file"):
        contents(tmp_path)
    os.unlink("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("sock")
        with pytest.raises(UsageError, match="sock is not a regular file"):
            contents(tmp_path)


def test_too_much_code_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / f"file {number}").write_bytes(b"x" * 100)
    with monkeypatch.context() as patch:
        patch.setattr(packing, "MOST_FILES", 3)
        with pytest.raises(UsageError, match="more than 3 files") as refused:
            contents(tmp_path)
        assert ".tradewindignore" in refused.value.hint
    monkeypatch.setattr(packing, "MOST_BYTES", 300)
    with pytest.raises(UsageError, match="GB"):
        contents(tmp_path)


def test_a_file_that_vanishes_while_it_is_packed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    found = contents(tmp_path)
    (tmp_path / "file").unlink()
    with pytest.raises(UsageError, match="file cannot be packed"):
        pack(found, io.BytesIO())


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_deleted_while_the_folder_is_searched_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Editors make and delete files all the time."""
    (tmp_path / "main.py").write_text("")
    (tmp_path / "here").mkdir()
    gone = tmp_path / "gone"
    {"file": gone.touch, "folder": gone.mkdir, "link": lambda: gone.symlink_to("main.py")}[kind]()
    listed = packing._entries

    def deletes(folder: Path, prefix: str) -> list[os.DirEntry[str]]:
        found = listed(folder, prefix)
        if gone.is_symlink() or gone.exists():
            gone.rmdir() if kind == "folder" else gone.unlink()
        return found

    monkeypatch.setattr(packing, "_entries", deletes)
    found = contents(tmp_path, without=[tmp_path / "here"])
    assert (found.files, found.links) == (("main.py",), ())


def test_a_link_that_vanishes_before_it_is_packed_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    found = contents(tmp_path)
    (tmp_path / "link").unlink()
    with pytest.raises(UsageError, match="link cannot be packed"):
        pack(found, io.BytesIO())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        contents(tmp_path / "nowhere")


def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    name = "d" * 200
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(os.pathconf(tmp_path, "PC_PATH_MAX") // len(name) + 1):
        os.mkdir(name, dir_fd=folder)
        above, folder = folder, os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(above)
    os.close(folder)
    with pytest.raises(UsageError, match="cannot be read: File name too long") as caught:
        contents(tmp_path)
    assert ".tradewindignore" in caught.value.hint
    (tmp_path / ".tradewindignore").write_text(f"/{name}\n")
    assert contents(tmp_path).files == (".tradewindignore",)


def test_a_pattern_that_is_none_names_the_file(tmp_path: Path) -> None:
    (tmp_path / ".tradewindignore").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"\.tradewindignore cannot be read"):
        contents(tmp_path)
