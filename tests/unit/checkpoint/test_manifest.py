"""A manifest is believed only when it is whole, and names every byte."""

import json

import pytest
from tests.unit.checkpoint.sealed import fill, seal

from holdfast.contract.checkpoint_files import (
    Damaged,
    PromisedFile,
    check_file,
    read_promises,
    share_out,
)
from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.manifest import (
    InvalidManifest,
    read_manifest,
    verify_hashes,
    verify_sizes,
)


def test_a_manifest_reads_as_it_was_written(tmp_path):
    directory = seal(tmp_path, 5, "aa", parent="zz")
    manifest = read_manifest(LocalFolder(directory))
    assert (manifest.step, manifest.parent, manifest.layout[0].node) == (5, "zz", "a")
    assert set(manifest.files) == {"__0_own.pt", "__1_own.pt", ".metadata"}
    assert verify_hashes(LocalFolder(directory), manifest) == []


def test_both_sides_read_the_same_promises(tmp_path):
    directory = seal(tmp_path, 5, "aa")
    facts = read_manifest(LocalFolder(directory)).files
    promises = read_promises(LocalFolder(directory))
    assert {p.name: (p.size, p.sha256) for p in promises} == {
        name: (fact.size, fact.sha256) for name, fact in facts.items()
    }
    for promise in promises:
        check_file(LocalFolder(directory), promise)


@pytest.mark.parametrize(
    "change",
    [('"step": 5', '"step": 6'), ('"parent": ""', '"parent": "x"'), ('"size": 7', '"size": 8')],
)
def test_a_changed_manifest_is_refused_by_both_sides(tmp_path, change):
    directory = seal(tmp_path, 5, "aa")
    path = directory / "manifest.json"
    old, new = change
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InvalidManifest, match="digest"):
        read_manifest(LocalFolder(directory))
    with pytest.raises(Damaged, match="digest"):
        read_promises(LocalFolder(directory))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"seal": 3}', '{"seal": {}}'])
def test_what_is_no_manifest_is_refused_by_both_sides(tmp_path, text):
    directory = fill(tmp_path, 5, "aa")
    (directory / "manifest.json").write_text(text)
    with pytest.raises(InvalidManifest):
        read_manifest(LocalFolder(directory))
    with pytest.raises(Damaged):
        read_promises(LocalFolder(directory))


def test_with_a_key_only_a_manifest_sealed_with_it_is_believed(tmp_path):
    ours = seal(tmp_path, 5, "aa", key=b"secret")
    theirs = seal(tmp_path, 6, "bb", key=b"other")
    bare = seal(tmp_path, 7, "cc")
    assert read_manifest(LocalFolder(ours), b"secret").step == 5
    assert read_promises(LocalFolder(ours), b"secret")
    assert b"secret" not in (ours / "manifest.json").read_bytes()
    for directory in (theirs, bare):
        with pytest.raises(InvalidManifest, match="key"):
            read_manifest(LocalFolder(directory), b"secret")
        with pytest.raises(Damaged, match="key"):
            read_promises(LocalFolder(directory), b"secret")


def test_a_flipped_byte_is_found_by_hash_and_not_by_size(tmp_path):
    directory = seal(tmp_path, 5, "aa")
    path = directory / "__1_own.pt"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    manifest = read_manifest(LocalFolder(directory))
    assert verify_sizes(LocalFolder(directory), manifest) == []
    assert verify_hashes(LocalFolder(directory), manifest) == [
        "__1_own.pt: its bytes have changed since they were saved"
    ]


def test_a_cut_and_a_missing_file_are_found_at_a_glance(tmp_path):
    directory = seal(tmp_path, 5, "aa")
    (directory / "__0_own.pt").write_bytes(b"aa")
    (directory / ".metadata").unlink()
    faults = verify_sizes(LocalFolder(directory), read_manifest(LocalFolder(directory)))
    assert faults == [".metadata: missing", "__0_own.pt: 2 bytes of 7"]


def test_a_manifest_can_not_point_outside_its_directory(tmp_path):
    (tmp_path / "outside").write_bytes(b"x")
    directory = seal(tmp_path, 5, "aa")
    promise = PromisedFile(
        "../outside", 1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    )
    with pytest.raises(Damaged, match="outside"):
        check_file(LocalFolder(directory), promise)


def test_every_file_is_checked_by_exactly_one_local_rank():
    files = [PromisedFile(f"f{n}", size, "") for n, size in enumerate([9, 1, 1, 1, 5, 0, 4])]
    shares = [share_out(files, part, 3) for part in range(3)]
    assert sorted(f.name for share in shares for f in share) == sorted(f.name for f in files)
    assert max(sum(f.size for f in share) for share in shares) <= 9


def test_the_manifest_is_json_that_people_can_read(tmp_path):
    text = (seal(tmp_path, 5, "aa") / "manifest.json").read_text()
    assert json.loads(text)["step"] == 5
    assert text.count("\n") > 10
