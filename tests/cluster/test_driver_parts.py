"""Parts of a driver without Ray: which results it accepts, how it makes batches of items, and the progress line."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ptxdiff.cluster.nodes import gpu
from ptxdiff.cluster.tasks import Misreported
from ptxdiff.records import Key, Result, packed, sent, unpacked
from ptxdiff.running.cluster import driver
from ptxdiff.running.cluster.driver import LARGEST, ItemBatch, queues
from ptxdiff.running.cluster.messages import ItemReport, checked
from ptxdiff.running.cluster.node_session import sent_options
from ptxdiff.running.item import fingerprint_of
from tests.support.case_sources import RIGHT

NODE = "host/1a2b"


@pytest.fixture
def item(pytester):
    """An item of a case on the emulator."""
    folder = pytester.mkdir("cases")
    (folder / "flip.py").write_text(RIGHT)
    collected, _ = pytester.inline_genitems("--ptx-backend=emulator", "--ptx-target=sm_90a", "cases")
    return collected[0]


def report(item, *results, outcome="passed", when="call", nodeid=None):
    records = packed(map(sent, results))
    data = {"nodeid": nodeid or item.nodeid, "when": when, "outcome": outcome, "ptxdiff_records": records}
    return ItemReport(item.nodeid, (data,), 0.1)


def result(item, **changes):
    i = item.item
    key = Key(i.loaded.name, changes.pop("variant", i.variant_name), i.target, changes.pop("backend", i.backend))
    return Result(key=key, verdict="pass", fingerprint={**fingerprint_of(i), **changes})


def test_a_report_gets_the_node_into_its_records(item):
    found = checked(report(item, result(item)), item, NODE)
    [record] = unpacked(found.reports[0]["ptxdiff_records"])
    assert record.record.node == NODE


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda i: "a text", "it sent str"),
        (lambda i: ItemReport("cases/other.py::x[sm_90a-emulator]", ()), "which it was not given"),
        (lambda i: report(i, result(i), nodeid="cases/other.py::x"), "which it was not given"),
        (lambda i: report(i, result(i, variant="another")), "contain one of flip::another"),
        (lambda i: report(i, result(i, backend="gpu")), "contain one of flip"),
        (lambda i: report(i), "passed, but sent no result"),
        (lambda i: ItemReport(i.nodeid, ()), "it sent nothing"),
        (lambda i: report(i, when="setup"), "passed, but sent no result"),
        (lambda i: report(i, replace(result(i), verdict="fail"), outcome="skipped"), "was skipped, but sent a result"),
        (lambda i: report(i, replace(result(i), verdict="fail")), "passed, but sent a result with the verdict fail"),
        (
            lambda i: report(i, result(i, **{next(iter(fingerprint_of(i.item))): "0" * 32})),
            "has another definition",
        ),
    ],
)
def test_records_of_other_items_are_refused(item, made, words):
    with pytest.raises(Misreported, match=words):
        checked(made(item), item, NODE)


def stand_in(name, file="cases/a.py"):
    return SimpleNamespace(nodeid=f"{file}::{name}")


def made(count, file="cases/a.py", per_group=4):
    items = [stand_in(f"v{k // per_group}[{k % per_group}]", file) for k in range(count)]
    return items, lambda item: item.nodeid.partition("[")[0]


def test_every_item_is_in_one_batch_and_groups_stay_together():
    one, group = made(40)
    other, _ = made(12, "cases/b.py")
    [queue] = queues([*one, *other], group)
    batches = []
    while batch := queue.next(3):
        batches.append(batch)
    ids = [n for b in batches for n in b.nodeids]
    assert sorted(ids) == sorted(i.nodeid for i in [*one, *other])
    assert len(set(ids)) == len(ids)
    for batch in batches:
        assert {n.partition("::")[0] for n in batch.nodeids} == {batch.file}
        assert len(batch.items) % 4 == 0
        assert len(batch.items) <= LARGEST


def test_batches_are_large_first_and_small_at_the_end():
    items, group = made(4000)
    [queue] = queues(items, group)
    queue.done, queue.seconds = 100, 10.0  # a tenth of a second for each item
    sizes = []
    while batch := queue.next(4):
        sizes.append(len(batch.items))
    assert max(sizes) == LARGEST
    assert sizes[-1] == 4
    assert sizes == sorted(sizes, reverse=True)


def test_the_rest_of_a_batch_is_sent_first():
    items, group = made(8)
    [queue] = queues(items, group)
    batch = queue.next(1)
    rest = batch.without(3)
    assert rest.items == batch.items[3:]
    assert batch.without(len(batch.items)) is None
    queue.again.append(rest)
    assert queue.next(1) is rest


def test_a_batch_is_called_by_its_file_its_need_and_its_first_item():
    batch = ItemBatch("cases/rcp.py", gpu("sm_90a"), (stand_in("rcp.rn[sm_90a-gpu]"), stand_in("x")))
    assert batch.name == "rcp.py sm_90a: rcp.rn[sm_90a-gpu] and 1 more"


def test_the_line_on_progress():
    cpu, waits = driver.QueueState("CPU", 4, 12, 4, 2.0), driver.QueueState("sm_90a", 0, 0, 1, 0.0)
    said = driver.line(10, 1, [cpu, waits])
    assert said == "cluster: 10 of 22 done, 1 failing; running 4 (CPU 4); waiting 8 (CPU 8); about 6 s left"
    assert "left" not in driver.line(10, 1, [cpu, driver.QueueState("sm_90a", 0, 3, 1, 0.0)])
    assert driver.line(10, 1, [driver.QueueState("CPU", 4, 400, 4, 6.0)]).endswith("about 10 min left")


def test_nodes_get_no_option_that_writes_or_chooses():
    option = SimpleNamespace(
        ptx_effort="full", ptx_records="x.jsonl", ptx_resume=True, ptx_cluster="auto", ptx_limit=3.0, maxfail=1,
        keyword="rcp", stream=object(), ptx_target=["sm_90a"],
    )  # fmt: skip
    sent = sent_options(option)
    assert (sent["ptx_effort"], sent["ptx_limit"], sent["ptx_target"]) == ("full", 3.0, ["sm_90a"])
    assert (sent["ptx_records"], sent["ptx_cluster"], sent["maxfail"], sent["keyword"]) == (None, None, 0, "")
    assert "stream" not in sent
