from __future__ import annotations

import faulthandler
import tempfile
import threading

from holdfast_sidecar.ranks.stack_dumps import StackFrame, main_thread, place, tell_places

WAITING = """\
Thread 0x00007f02e52db6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f02e5e3ab80 (most recent call first):
  File "/opt/x/lib/python3.11/site-packages/torch/distributed_c10d.py", line 3010 in all_reduce
  File "/opt/x/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/job/train.py", line 30 in train_step
  File "/job/train.py", line 60 in <module>
"""

SPIED = """\
Python v3.11.7 (/usr/bin/python3.11)

Thread 22040 (idle): "MainThread"
    0x7f8e8aea3e96 (libc.so.6)
    PyThread_acquire_lock_timed (libpython3.11.so.1.0)
    load_batch (/job/data/loading.py:41)
    <module> (/job/train.py:60)
Thread 22041 (active): "Thread-1 (work)"
    work (/job/train.py:9)
"""


def test_a_rank_in_a_collective_is_told_by_the_call_and_the_line_that_made_it() -> None:
    assert place(main_thread(WAITING)) == "in all_reduce (train.py:30)"


def test_a_rank_in_its_own_code_is_told_by_its_function() -> None:
    text = WAITING + "\n" + WAITING.replace("distributed/", "").split("  File")[0]
    own = 'Current thread 0x00 (most recent call first):\n  File "/job/train.py", line 12 in load\n'
    assert place(main_thread(text + own)) == "in load (train.py:12)"


def test_native_frames_are_passed_over_where_the_script_is_known() -> None:
    assert place(main_thread(SPIED)) == "in load_batch (loading.py:41)"


def test_hooks_of_ours_are_passed_over() -> None:
    frames = [
        StackFrame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 3010),
        StackFrame("timed.<locals>.wrapper", "/x/holdfast/patches/timed.py", 40),
        StackFrame("train_step", "/job/train.py", 17),
    ]
    assert place(frames) == "in all_reduce (train.py:17)"


def test_a_rank_that_imports_is_told_by_the_line_that_does() -> None:
    frames = [
        StackFrame("_find_and_load", "<frozen importlib._bootstrap>", 1027),
        StackFrame("<module>", "/job/train.py", 1),
    ]
    assert place(frames) == "in <module> (train.py:1)"


def test_the_last_dump_of_a_file_counts() -> None:
    before = WAITING.replace("line 30", "line 29")
    assert place(main_thread(before + WAITING)) == "in all_reduce (train.py:30)"


def test_a_stack_without_the_script_is_told_by_its_innermost_call() -> None:
    frames = [StackFrame("forkserver_loop", "/usr/lib/python3.11/multiprocessing/forkserver.py", 5)]
    assert place(frames) == "in forkserver_loop (forkserver.py:5)"
    assert place([]) == ""
    assert place(main_thread("nonsense\n  File\n")) == ""


def test_what_faulthandler_really_writes_is_understood() -> None:
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    other.start()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        frames = main_thread(file.read())
    release.set()
    other.join()
    name = "test_what_faulthandler_really_writes_is_understood"
    assert frames[0].name == name
    assert place(frames).startswith(f"in {name} (test_stacks.py:")


def test_ranks_at_one_place_are_told_together_and_the_culprit_first() -> None:
    waiting = "in all_reduce (train.py:30)"
    places = {
        0: waiting,
        1: waiting,
        2: waiting,
        3: "in load_batch (train.py:41)",
        5: waiting,
        6: "",
    }
    assert tell_places(places, [3]) == (
        "rank 3 in load_batch (train.py:41); ranks 0-2, 5 in all_reduce (train.py:30)"
    )
    assert tell_places({}, [3]) == ""


def test_many_places_are_counted() -> None:
    told = tell_places({rank: f"in work (train.py:{rank})" for rank in range(10)}, [7])
    assert told.startswith("rank 7 in work (train.py:7); rank 0 ")
    assert told.endswith("; 6 more elsewhere")
