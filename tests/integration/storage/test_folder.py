"""Folders keep the same promises on a disk, in memory and on a real S3 server."""

import errno
import itertools
import os
import stat

import pytest

from holdfast.contract.permit import Licence, NotPermitted, Permit, Stored
from holdfast.contract.storage import (
    LocalFolder,
    NotOurs,
    Unusable,
    absolute,
    child,
    list_children,
    open_folder,
    sync_directory,
    written_here,
)

_numbers = itertools.count()


def any_file(name):
    """Whatever is there is known."""
    return 0


def whole(folder):
    """What the mark in a folder gives."""
    return Permit(Licence.MARK, Stored(folder.url), "for a test")


@pytest.fixture(params=["local", "memory", "s3"])
def root(request, tmp_path):
    """Path or URL of a place where nothing is yet."""
    if request.param == "local":
        return str(tmp_path / "root")
    if request.param == "memory":
        return f"memory://tests/{next(_numbers)}"
    return f"{request.getfixturevalue('object_store').url}/{next(_numbers)}"


@pytest.fixture
def folder(root):
    return open_folder(child(root, "step-1"))


def test_what_was_written_is_read(folder):
    assert not folder.exists("a.json")
    folder.write("a.json", b"one")
    folder.write("a.json", b"two!")
    assert folder.read("a.json") == b"two!"
    assert folder.size("a.json") == 4
    assert folder.exists("a.json")
    assert folder.modified_unix_s("a.json") > 1e9


def test_a_large_file_goes_through_in_pieces(folder):
    piece = os.urandom(3 << 20)
    with folder.create("deep/er/big.bin") as stream:
        for _ in range(5):
            stream.write(piece)
        assert stream.tell() == 5 * len(piece)
    with folder.open("deep/er/big.bin") as stream:
        stream.seek(-100, 2)
        assert stream.read() == piece[-100:]
        stream.seek(len(piece) - 10)
        assert stream.read(20) == piece[-10:] + piece[:10]
        stream.seek(0)
        assert stream.read() == piece * 5


def test_a_writer_may_close_the_stream_itself(folder):
    with folder.create("a") as stream:
        stream.write(b"whole")
        stream.close()
    assert folder.read("a") == b"whole"


def test_an_empty_file_is_a_file(folder):
    with folder.create("streamed"):
        pass
    folder.write("written", b"")
    assert folder.read("streamed") == folder.read("written") == b""


def break_off(folder, name, size, closes=False):
    with folder.create(name) as stream:
        stream.write(b"y" * size)
        if closes:
            stream.close()
        raise LookupError("planted")


@pytest.mark.parametrize("size", [10, 20 << 20])
@pytest.mark.parametrize("closes", [False, True])
def test_what_breaks_off_was_never_there(folder, size, closes):
    folder.write("beside", b"x")
    with pytest.raises(LookupError):
        break_off(folder, "half", size, closes)
    assert folder.names() == ["beside"]
    assert not folder.exists("half")


def test_what_broke_a_write_off_is_told_also_where_nothing_is_left_to_remove():
    folder = open_folder(f"memory://tests/{next(_numbers)}")

    def break_off_with_nothing_there():
        with folder.create("name"):
            folder.remove_known(any_file, whole(folder))
            raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason"):
        break_off_with_nothing_there()


def test_an_older_file_survives_a_new_one_that_breaks_off(folder):
    folder.write("a", b"old")
    with pytest.raises(LookupError):
        break_off(folder, "a", 3)
    assert folder.read("a") == b"old"


def test_nothing_appears_before_the_end(folder):
    folder.write("beside", b"x")
    with folder.create("a") as stream:
        stream.write(b"y" * (12 << 20))
        assert folder.names() == ["beside"]
        assert not folder.exists("a")
    assert folder.names() == ["a", "beside"]


def test_names_are_relative_and_go_down(folder):
    assert folder.names() == []
    for name in ("b", ".metadata", "deep/er/a"):
        folder.write(name, b"x")
    assert folder.names() == [".metadata", "b", "deep/er/a"]


def test_what_is_missing_is_told_as_missing(folder):
    for there_is_more in (False, True):
        for ask in (folder.read, folder.open, folder.size, folder.modified_unix_s):
            with pytest.raises(FileNotFoundError):
                ask("nothing")
        assert not folder.exists("nothing")
        if not there_is_more:
            folder.write("beside", b"x")


def test_a_directory_is_no_file(folder):
    folder.write("deep/a", b"x")
    assert not folder.exists("deep")


def test_what_was_removed_is_gone(folder, root):
    folder.write("a", b"x")
    folder.write("deep/b", b"x")
    folder.remove("a", written_here(folder, "a"))
    folder.remove("a", written_here(folder, "a"))
    assert folder.names() == ["deep/b"]
    folder.remove_known(any_file, whole(folder))
    folder.remove_known(any_file, whole(folder))
    assert folder.names() == []
    assert list_children(root) == []


def test_a_permit_for_one_thing_removes_no_other(folder, root):
    folder.write("a", b"x")
    folder.write("b", b"x")
    other = open_folder(child(root, "step-2"))
    other.write("b", b"x")
    for wrong in (written_here(folder, "a"), written_here(other, "b"), whole(other)):
        with pytest.raises(NotPermitted):
            folder.remove("b", wrong)
        with pytest.raises(NotPermitted):
            folder.remove_known(any_file, wrong)
    with pytest.raises(NotPermitted, match="was not written here"):
        written_here(open_folder(folder.url), "a")
    assert folder.names() == ["a", "b"]


def test_a_folder_with_an_unknown_file_is_left_as_it_is(folder):
    for name in ("a", "deep/b", "deep/unknown"):
        folder.write(name, b"x")
    with pytest.raises(NotOurs, match="deep/unknown was not written by Holdfast"):
        folder.remove_known({"a": 0, "deep/b": 1}.get, whole(folder))
    assert folder.names() == ["a", "deep/b", "deep/unknown"]


def test_only_the_folder_itself_goes_and_not_one_whose_name_begins_like_it(folder, root):
    for name in ("step-1", "step-10"):
        open_folder(child(root, name)).write("a", b"x")
    folder.remove_known(any_file, whole(folder))
    assert list_children(root) == ["step-10"]


def test_children_are_folders_that_begin_so(root):
    assert list_children(root) == []
    for name in ("step-2", "step-1", "other"):
        open_folder(child(root, name)).write("deep/a", b"x")
    open_folder(root).write("step-file", b"x")
    assert list_children(root, "step-") == ["step-1", "step-2"]
    assert list_children(root) == ["other", "step-1", "step-2"]


def test_what_another_process_wrote_is_seen_at_once(folder, root):
    assert folder.names() == list_children(root) == []
    open_folder(child(root, "step-1")).write("a", b"x")
    assert folder.names() == ["a"]
    assert list_children(root) == ["step-1"]
    other = open_folder(child(root, "step-1"))
    other.remove("a", whole(other))
    assert not folder.exists("a")


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "", "deep/../../a", "a\0"])
def test_names_lead_nowhere_else(folder, name):
    def write(name):
        folder.write(name, b"x")

    def remove(name):
        folder.remove(name, whole(folder))

    for use in (folder.read, folder.size, write, remove):
        with pytest.raises(PermissionError):
            use(name)


def test_its_name_is_the_last_part(folder):
    assert folder.name == "step-1"


def test_a_link_out_of_a_local_folder_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(FileNotFoundError, match="outside"):
        open_folder(str(tmp_path / "folder")).read("link")


def test_what_a_killed_writer_left_is_no_file(tmp_path):
    folder = LocalFolder(tmp_path)
    stream = folder.create("a")
    stream.__enter__().write(b"half")
    assert len(list(tmp_path.iterdir())) == 1
    assert folder.names() == []


def test_a_root_that_nothing_holds_is_trouble(tmp_path, object_store):
    with pytest.raises(FileNotFoundError):
        list_children(str(tmp_path / "not mounted" / "root"))
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        list_children("s3://another-bucket/root")


def test_a_file_on_disk_is_synced_before_and_after_its_renaming(tmp_path, monkeypatch):
    done = []
    sync = os.fsync

    def note_and_sync(descriptor):
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note_and_sync)
    LocalFolder(tmp_path / "new").write("a", b"x")
    assert done[0] == str(tmp_path)  # the new directory's own name
    assert done[1].endswith(".writing")
    assert done[2] == str(tmp_path / "new")


def test_uploads_that_never_ended_are_aborted_with_the_folder(object_store):
    client = object_store.client()
    for key in ("up/step-1/a", "up/step-10/b"):
        client.create_multipart_upload(Bucket="checkpoints", Key=key)
    client.create_multipart_upload(Bucket="checkpoints", Key="up/step-1/unknown")
    folder = open_folder("s3://checkpoints/up/step-1")
    folder.remove_known({"a": 0}.get, whole(folder))
    left = client.list_multipart_uploads(Bucket="checkpoints", Prefix="up/")["Uploads"]
    assert {upload["Key"] for upload in left} == {"up/step-1/unknown", "up/step-10/b"}


def test_an_upload_that_breaks_off_leaves_no_parts_behind(object_store):
    with pytest.raises(LookupError):
        break_off(open_folder("s3://checkpoints/broken"), "a", 51 << 20)
    found = object_store.client().list_multipart_uploads(Bucket="checkpoints", Prefix="broken")
    assert found.get("Uploads", []) == []


def test_a_server_that_is_away_is_an_ordinary_error(monkeypatch, object_store):
    import fsspec

    for name, value in {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    monkeypatch.setattr(fsspec.get_filesystem_class("s3"), "retries", 1)
    folder = open_folder("s3://checkpoints/away")
    try:
        for use in (folder.names, folder.children, lambda: folder.write("a", b"x")):
            with pytest.raises(OSError, match=r"127\.0\.0\.1:9") as caught:
                use()
            assert not isinstance(caught.value, FileNotFoundError)
        with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
            folder.exists("a")
    finally:
        fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_a_missing_driver_is_named():
    with pytest.raises(Unusable, match="gs:// is not installed: pip install gcsfs"):
        open_folder("gs://bucket/x")


def test_an_unknown_scheme_is_refused():
    with pytest.raises(Unusable, match="no storage is known under floppy://"):
        open_folder("floppy://a/b")


def test_a_password_in_a_url_is_refused_and_not_repeated():
    with pytest.raises(Unusable, match="password") as caught:
        open_folder("ftp://me:hunter2@host/x")
    assert "hunter2" not in str(caught.value)


def test_paths_become_absolute_and_urls_stay(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/of/mine")
    assert absolute("a/b") == f"{tmp_path}/a/b"
    assert absolute("~/x") == "/of/mine/x"
    assert absolute("s3://bucket/x/") == "s3://bucket/x"


def test_file_urls_are_paths(tmp_path):
    open_folder(f"file://{tmp_path}/x").write("a", b"1")
    assert (tmp_path / "x" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_can_not_sync_directories_still_takes_files(
    tmp_path, monkeypatch, number
):
    """SMB and some file systems in user space answer so."""
    sync = os.fsync

    def refuse_directories(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_directories)
    folder = open_folder(str(tmp_path / "new" / "step-1"))
    folder.write("a.json", b"one")
    assert folder.read("a.json") == b"one"


def test_a_directory_that_can_not_be_written_back_is_an_error(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync_directory(tmp_path)
