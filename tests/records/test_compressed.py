"""Compressed records and the shared store of texts: what is written, what is read back, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from backports import zstd

from ptxdiff.records import (
    End,
    RecordError,
    StoredText,
    Text,
    TextStore,
    WriteError,
    Writer,
    merged,
    read,
    read_lines,
    record_files,
    text_hash,
)
from ptxdiff.records.texts import Pack, StoreWriter
from tests.support.case_sources import RIGHT
from tests.support.reports import synthetic
from tests.support.reports.record_samples import KEY, RESULT, RUN

PTX = [Text(text_hash(t), "ptx", t) for t in (f".visible .entry kernel_{n}() {{ ret; }}" for n in range(40))]


def results(count: int):
    return [replace(RESULT, key=replace(KEY, variant=f"v{n}"), ptx=PTX[n % len(PTX)].hash) for n in range(count)]


def written(path: Path, *records, shared: bool = False) -> Path:
    writer = Writer(path, shared=shared)
    writer.write(RUN)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def whole(found):
    return found.results, dict(found.texts), found.cases, found.timings, found.run


def packs(folder: Path) -> list[Path]:
    return sorted((folder / "texts").glob("*.zst"))


# ---- what is written and read back -----------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("shared", [False, True], ids=["one file", "shared texts"])
def test_both_forms_give_the_same_run(tmp_path, shared):
    run = synthetic.catalogue(cases=3)
    records = [run.run, *run.cases.values(), *run.texts.values(), *run.results, *run.timings, run.end]
    for name in ("plain.jsonl", "packed.jsonl.zst"):
        writer = Writer(tmp_path / name, shared=shared and name.endswith(".zst"))
        writer.write(*records)
        writer.close()
    plain, packed = (read(tmp_path / name) for name in ("plain.jsonl", "packed.jsonl.zst"))
    assert whole(plain) == whole(packed)
    assert plain.end == packed.end == run.end
    assert dict(packed.texts) == dict(run.texts)
    sizes = [(tmp_path / name).stat().st_size for name in ("plain.jsonl", "packed.jsonl.zst")]
    assert sizes[1] < sizes[0] / 5
    assert bool(packs(tmp_path)) == shared


def test_a_compressed_file_holds_the_lines_of_the_plain_one(tmp_path):
    plain = written(tmp_path / "a.jsonl", *PTX, *results(50))
    packed = written(tmp_path / "a.jsonl.zst", *PTX, *results(50))
    assert zstd.decompress(packed.read_bytes()) == plain.read_bytes()


def test_runs_of_a_folder_store_each_text_once(tmp_path):
    written(tmp_path / "1.jsonl.zst", *PTX[:30], *results(30), shared=True)
    written(tmp_path / "2.jsonl.zst", *PTX, *results(40), shared=True)
    written(tmp_path / "3.jsonl.zst", *PTX, *results(40), shared=True)
    stored = [name for name, _ in TextStore(tmp_path).read({})]
    assert sorted(stored) == sorted(t.hash for t in PTX)
    assert [len(read(file).texts) for file in record_files(tmp_path)] == [30, 40, 40]
    assert dict(merged([read(f) for f in record_files(tmp_path)]).texts) == {t.hash: t for t in PTX}


def test_texts_can_be_left_in_the_store(tmp_path):
    path = written(tmp_path / "1.jsonl.zst", *PTX, *results(40), shared=True)
    for pack in packs(tmp_path):
        pack.unlink()
    assert len(read(path, texts=False).results) == 40


def test_old_and_new_runs_of_a_folder_are_all_found(tmp_path):
    written(tmp_path / "1.jsonl", *results(1))
    written(tmp_path / "2.jsonl.zst", *results(2), shared=True)
    assert [f.name for f in record_files(tmp_path)] == ["1.jsonl", "2.jsonl.zst"]
    assert len(read(tmp_path).results) == 2


# ---- a process that ends early ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["one file", "shared texts"])
def test_a_killed_run_leaves_all_that_it_wrote(tmp_path, shared):
    """The process ends without closing anything; the frame and the pack have no end."""
    code = f"""if True:
        import os
        from pathlib import Path
        from ptxdiff.records import Writer
        from tests.records.test_compressed import PTX, RUN, results
        writer = Writer(Path({str(tmp_path / "run.jsonl.zst")!r}), shared={shared})
        writer.write(RUN)
        for text, result in zip(PTX, results(40)):
            writer.write(text, result)
        os._exit(9)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    found = read(tmp_path / "run.jsonl.zst")
    assert (len(found.results), len(found.texts), found.end) == (40, 40, None)


def test_every_prefix_of_a_file_can_be_read(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *results(12))
    data, kept = path.read_bytes(), set()
    for length in range(len(data) - 1, 400, -7):
        path.write_bytes(data[:length])
        kept.add(len(read(path).results))
    assert kept >= {0, 5, 11, 12}


def test_a_resumed_run_goes_on_in_its_form(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *PTX[:20], *results(20), shared=True)
    path.write_bytes(path.read_bytes()[:-9])  # as a killed process leaves it
    writer = Writer(path, resume=True)
    for record in (*PTX, *[r for r in results(40) if r.key not in {x.key for x in read(path).results}]):
        writer.write(record)
    writer.close()
    kinds = [type(r) for r in read_lines(path)]
    assert kinds.count(StoredText) == 40
    assert kinds.count(Text) == 0
    assert dict(read(path).texts) == {t.hash: t for t in PTX}


# ---- edits are detected ----------------------------------------------------------------------------------------------


def test_every_changed_byte_of_a_compressed_file_is_detected(tmp_path):
    """It is refused, or read as a run that was cut short; or the byte decides no content, as in the frame's header."""
    end = End("2026-01-01T00:01:00+00:00", 60.0, {RESULT.outcome: 12})
    path = written(tmp_path / "run.jsonl.zst", *results(12), end)
    data, before = path.read_bytes(), whole(read(path))
    refused = 0
    for place in range(0, len(data), 5):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        try:
            found = read(path)
        except RecordError:
            refused += 1
            continue
        assert found.end is None or whole(found) == before
        assert all(r in before[0] for r in found.results)
    assert refused > 0.95 * len(data) / 5


def test_an_edited_line_is_refused_in_a_file_that_is_compressed_again(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *results(3))
    lines = zstd.decompress(path.read_bytes()).replace(b'"total":10', b'"total":11', 1)
    path.write_bytes(zstd.compress(lines))
    with pytest.raises(RecordError, match=r"run\.jsonl\.zst:2: the checksum is wrong"):
        read(path)


def test_bytes_after_the_end_are_refused(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *results(3))
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(RecordError, match="bytes after the end"):
        read(path)


def edited(pack: Path) -> None:
    pack.write_bytes(zstd.compress(zstd.decompress(pack.read_bytes()).replace(b"kernel_7(", b"kernel_8(")))


def test_an_edited_text_is_named(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *PTX, *results(40), shared=True)
    edited(packs(tmp_path)[0])
    with pytest.raises(RecordError, match=rf"the text {PTX[7].hash} \(ptx\) is not in .*texts;.* was changed after"):
        read(path)


def test_texts_may_not_take_each_others_places(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *PTX, *results(40), shared=True)
    (pack,) = packs(tmp_path)
    data = zstd.decompress(pack.read_bytes())
    one, other = PTX[3].hash.encode(), PTX[4].hash.encode()
    pack.write_bytes(zstd.compress(data.replace(one, b"?").replace(other, one).replace(b"?", other)))
    with pytest.raises(RecordError, match=f"the text {PTX[3].hash} .* and 1 more"):
        read(path)


def test_a_missing_store_is_named(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *PTX, *results(40), shared=True)
    path.rename(tmp_path / "moved.jsonl.zst")
    (tmp_path / "texts").rename(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match=rf"the text {PTX[0].hash} \(ptx\) and 39 more is not in .*texts"):
        read(tmp_path / "moved.jsonl.zst")


def test_a_damaged_pack_names_what_it_held_and_is_written_again(tmp_path):
    path = written(tmp_path / "run.jsonl.zst", *PTX, *results(40), shared=True)
    (pack,) = packs(tmp_path)
    pack.write_bytes(b"\x00" + pack.read_bytes()[1:])
    with pytest.raises(RecordError, match=f"the text {PTX[0].hash} .* and 39 more"):
        read(path)
    written(tmp_path / "next.jsonl.zst", *PTX, *results(40), shared=True)
    assert len(read(path).texts) == 40


def test_a_block_that_could_not_be_written_ends_the_frame(tmp_path):
    """Later blocks would refer to it. The file keeps what it had."""
    path = tmp_path / "run.jsonl.zst"
    writer = Writer(path)
    writer.write(RUN, *results(3))
    real = writer._file
    writer._file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb", buffering=0)
    with pytest.raises(WriteError, match="No space left"):
        writer.write(replace(RESULT, words="x" * 200_000))
    writer._file.close()
    writer._file = real
    with pytest.raises(WriteError, match="No space left"):
        writer.write(*results(4)[3:])
    writer.close()
    assert len(read(path).results) == 3


# ---- runs at the same time, and pruning ------------------------------------------------------------------------------


def test_runs_may_write_at_the_same_time(tmp_path):
    writers = [Writer(tmp_path / f"{n}.jsonl.zst", shared=True) for n in range(3)]
    for writer in writers:
        writer.write(RUN)
    for text, result in zip(PTX, results(40), strict=True):
        for writer in writers:
            writer.write(text, result)
    for writer in writers:
        writer.close()
    assert [dict(read(f).texts) == {t.hash: t for t in PTX} for f in record_files(tmp_path)] == [True] * 3
    before, after = TextStore(tmp_path).prune({t.hash: "" for t in PTX})
    assert after < before
    assert len(packs(tmp_path)) == 1
    assert [len(read(f).texts) for f in record_files(tmp_path)] == [40] * 3


def test_pruning_removes_what_no_run_names(tmp_path):
    path = written(tmp_path / "1.jsonl.zst", *PTX[:5], *results(5), shared=True)
    written(tmp_path / "2.jsonl.zst", *PTX, *results(40), shared=True).unlink()
    TextStore(tmp_path).prune(read(path).stored)
    assert sorted(name for name, _ in TextStore(tmp_path).read({})) == sorted(t.hash for t in PTX[:5])


def test_nothing_is_pruned_while_a_run_writes(tmp_path):
    writer = StoreWriter(tmp_path)
    writer.add(PTX[0])
    with pytest.raises(WriteError, match="a run is writing texts"):
        TextStore(tmp_path).prune({})
    writer.close()
    TextStore(tmp_path).prune({})
    assert packs(tmp_path) == []


def test_nothing_is_pruned_if_a_used_text_is_damaged(tmp_path):
    path = written(tmp_path / "1.jsonl.zst", *PTX, *results(40), shared=True)
    edited(packs(tmp_path)[0])
    before = packs(tmp_path)
    with pytest.raises(RecordError, match=f"nothing was removed: text {PTX[7].hash} is missing"):
        TextStore(tmp_path).prune(read(path, texts=False).stored)
    assert packs(tmp_path) == before
    assert list((tmp_path / "texts").glob("*.tmp")) == []


def test_a_text_is_in_its_pack_when_its_record_is_written(tmp_path):
    pack = Pack(tmp_path)
    pack.add(PTX[0].hash, PTX[0].text)
    assert PTX[0].text in zstd.ZstdDecompressor().decompress(pack.path.read_bytes()).decode()
    pack.close()


def test_runs_in_a_folder_are_compressed_and_share_texts(run_cases, pytester):
    """A second run in the folder adds no text, and a named file holds all of its run."""
    options = ("--ptx-backend=emulator", "--ptx-target=sm_90")
    for _ in range(2):
        run_cases("--ptx-records=runs", *options, flip=RIGHT)
    first, second = record_files(pytester.path / "runs")
    assert first.name.endswith(".jsonl.zst")
    assert len(packs(pytester.path / "runs")) == 1
    run_cases("--ptx-records=run.jsonl.zst", *options, flip=RIGHT)
    whole_run = read(pytester.path / "run.jsonl.zst")
    assert whole_run.stored == {}
    assert dict(read(first).texts) == dict(read(second).texts) == dict(whole_run.texts) != {}
    assert not (pytester.path / "texts").exists()


def test_a_run_in_a_folder_is_continued_by_its_name(run_cases, pytester):
    run_cases("--ptx-records=runs", "--ptx-backend=emulator", "--ptx-target=sm_90", flip=RIGHT)
    (file,) = record_files(pytester.path / "runs")
    before = read(file)
    words = f"--ptx-records={file.relative_to(pytester.path)}"
    run_cases(words, "--ptx-resume", "--ptx-backend=emulator", "--ptx-target=sm_90", flip=RIGHT)
    after = read(file)
    assert after.stored == before.stored
    assert [r.key for r in after.results] == [r.key for r in before.results]
    assert after.end is not None
