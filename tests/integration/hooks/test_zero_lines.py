"""Unmodified scripts with the real torch, run as ranks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.contract import page, switches
from holdfast.contract.page import Ending, Flag, Phase, RecordFlag, Word

pytestmark = pytest.mark.torch

TRAIN = """
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for batch in DataLoader(torch.randn(40, 8), batch_size=4):
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(repr(loss.item()), type(torch.autograd.backward).__name__)
    print(hasattr(torch.autograd.backward, "__wrapped__"))
"""


def test_a_script_is_recorded_without_a_line_changed(stage) -> None:
    ended = stage.run(TRAIN)
    assert (ended.code, ended.err) == (0, "")
    identity = page.parse_identity_zone(stage.read())
    assert identity is not None
    assert (identity.job, identity.node, identity.rank) == ("job", "node", 0)
    assert stage.word(Word.STEP) == stage.word(Word.OPTIMIZER_CALLS) == 20
    assert stage.ending() is Ending.FINISHED
    assert stage.word(Word.PHASE) == Phase.FINISHED
    assert stage.word(Word.HOOK_ERRORS) == 0
    assert stage.word(Word.FLAGS) & Flag.TORCH_IMPORTED
    records = stage.records()
    assert [record.step for record in records] == list(range(1, 21))
    for record in records:
        parts = (record.data_us, record.forward_us, record.backward_us, record.optimizer_us)
        assert min(parts) > 0
        assert sum(parts) + record.other_us + record.compiling_us == record.total_us
        assert record.flags == RecordFlag.LOSS | RecordFlag.WAITS_SEEN
        assert record.backwards == 1
    assert repr(records[-1].loss) == ended.out.split()[0]


def test_without_holdfast_the_same_script_is_untouched(stage) -> None:
    env = stage.environment()
    for name in [name for name in env if "HOLDFAST" in name]:
        del env[name]
    ended = stage.run(TRAIN, env)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.split()[2] == "False"
    assert stage.page_names() == []


def test_switched_off_nothing_is_claimed(stage) -> None:
    env = stage.environment(HOLDFAST_HOOKS="0", PYTHONPATH=stage.stub_torch())
    assert (
        stage.run("import sys, torch; assert 'holdfast.rank.process' not in sys.modules", env).code
        == 0
    )
    assert stage.page_names() == []


TOUCHED = """
    import sys
    import torch
    import torch.distributed as dist
    from torch.nn.utils import clip_grad_norm_
    from torch.optim import optimizer as hooks

    loader = torch.utils.data.dataloader
    functions = [
        torch.autograd.backward, torch.Tensor.to, torch.Tensor.cuda, torch.save, dist.all_reduce,
        dist.Work.wait, dist.init_process_group, clip_grad_norm_, torch.amp.GradScaler.scale,
        loader._BaseDataLoaderIter.__next__, loader._MultiProcessingDataLoaderIter.__init__,
        torch.nn.parallel.DistributedDataParallel.__init__, sys.excepthook,
    ]
    print([
        at for at, function in enumerate(functions)
        if "/holdfast/" in getattr(getattr(function, "__code__", None), "co_filename", "")
    ])
    print(len(hooks._global_optimizer_pre_hooks))
"""


def test_each_hook_can_be_left_out_and_all_of_them_leave_torch_as_it_is(stage) -> None:
    without = ",".join(f"-{hook}" for hook in switches.HOOKS)
    ended = stage.run(TOUCHED, stage.environment(HOLDFAST_HOOKS=without))
    assert (ended.code, ended.out, ended.err) == (0, "[]\n0\n", "")


def test_tensors_are_moved_by_torch_s_own_functions(stage) -> None:
    ended = stage.run(TOUCHED)
    assert (ended.code, ended.err) == (0, "")
    touched, optimizers = ended.out.splitlines()
    assert json.loads(touched) == [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert optimizers == "1"


def test_a_module_run_by_name_is_recorded(stage) -> None:
    stage.script(TRAIN, "trainer.py")
    ended = subprocess.run(
        [sys.executable, "-m", "trainer"], env=stage.environment(), cwd=stage.folder, check=True
    )
    assert ended.returncode == 0
    assert stage.word(Word.STEP) == 20


def test_accumulation_several_optimizers_and_a_scaler_make_the_steps_one_would_count(stage) -> None:
    ended = stage.run(
        """
        import gc, json
        import torch
        from holdfast.contract import page
        from holdfast.rank import process

        steps = lambda: process.current().word(page.Word.STEP)
        loss_seen = lambda: page.bits_float(process.current().word(page.Word.LOSS_BITS))
        model = torch.nn.Linear(4, 1)
        data = torch.ones(2, 4)
        found = {}

        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for micro_batch in range(12):
            (model(data).mean() / 4).backward()
            if micro_batch % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        found["accumulated"] = steps()

        del optimizer
        gc.collect()
        generator = torch.optim.SGD(model.parameters(), lr=0.01)
        critic = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            for optimizer in (generator, critic, critic):
                optimizer.zero_grad()
                model(data).mean().backward()
                optimizer.step()
        found["several"] = steps() - found["accumulated"]

        before = steps()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for index in range(4):
            generator.zero_grad()
            loss = model(data).mean() * 0 + 0.5
            scaler.scale(loss).backward()
            if index == 1:
                model.weight.grad[0, 0] = float("inf")
            scaler.step(generator)
            scaler.update()
        found["scaled"] = steps() - before
        found["loss"] = loss_seen()
        found["nonfinite"] = process.current().word(page.Word.NONFINITE)
        print(json.dumps(found))
        """
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {
        "accumulated": 3,
        "several": 3,
        "scaled": 3,
        "loss": 0.5,
        "nonfinite": 0,
    }


def test_gradient_norms_are_seen_where_scripts_clip_and_a_scalers_skips_are_no_fault(
    stage,
) -> None:
    ended = stage.run(
        """
        import json
        import torch
        from torch.nn.utils import clip_grad_norm_
        from torch.nn.utils.clip_grad import clip_grad_norm_ as the_same
        from holdfast.contract import page
        from holdfast.rank import process

        word = lambda name: process.current().word(page.Word[name])
        seen = lambda: page.bits_float(word("GRADIENT_BITS"))
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        found = {"is_exact": True}
        for clip in (clip_grad_norm_, the_same, torch.nn.utils.clip_grad_norm_):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).mean().backward()
            norm = clip(model.parameters(), max_norm=0.5)
            found["is_exact"] &= seen() == norm.item()
            optimizer.step()

        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for index in range(4):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 4)).mean()).backward()
            if index in (1, 2):
                model.weight.grad[0, 0] = float("inf")
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), max_norm=0.5)
            found[f"skips_{index}"] = word("SCALER_SKIPS")
            scaler.step(optimizer)
            scaler.update()
        found["overflowed"] = word("NONFINITE_GRADIENTS")

        model.weight.grad[0, 0] = float("nan")
        clip_grad_norm_(model.parameters(), max_norm=0.5)
        found["without_scaler"] = word("NONFINITE_GRADIENTS")
        found["errors"] = word("HOOK_ERRORS")
        print(json.dumps(found))
        """
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {
        "is_exact": True,
        "skips_0": 0,
        "skips_1": 1,
        "skips_2": 2,
        "skips_3": 0,
        "overflowed": 0,
        "without_scaler": 1,
        "errors": 0,
    }
    records = [r for r in stage.records() if r.flags & RecordFlag.GRADIENT]
    assert len(records) == 5
    assert all(record.gradient_norm > 0 for record in records)


def test_compiling_is_a_phase_and_no_hook_breaks_a_graph(stage) -> None:
    ended = stage.run(
        """
        import json
        import torch
        from holdfast.contract import page
        from holdfast.rank import process

        recorder = process.current()
        entered = []
        enter = type(recorder).enter

        def listening(self, phase):
            entered.append(phase.name)
            return enter(self, phase)

        type(recorder).enter = listening

        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        for _ in range(3):
            optimizer.zero_grad()
            compiled(torch.ones(2, 4)).mean().backward()
            optimizer.step()
        found = {"steps": recorder.word(page.Word.STEP), "compiling": entered.count("COMPILING")}
        flags = recorder.word(page.Word.FLAGS)
        found["flag"] = bool(flags & page.Flag.DYNAMO_IMPORTED)

        class Own(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {})

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.add_(parameter.grad, alpha=-0.01)

        def whole_step():
            compiled(torch.ones(2, 4)).mean().backward()
            optimizer.step()

        before = recorder.word(page.Word.STEP)
        own = Own(model.parameters())
        for step in (lambda: optimizer.step(), whole_step):
            compiled_step = torch.compile(step, backend="eager")
            for _ in range(3):
                compiled_step()
        torch.compile(lambda: own.step(), backend="eager", fullgraph=True)()
        found["compiled_steps"] = recorder.word(page.Word.STEP) - before
        found["errors"] = recorder.word(page.Word.HOOK_ERRORS)
        print(json.dumps(found))
        """
    )
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found.pop("compiling") >= 1
    assert found == {"steps": 3, "flag": True, "compiled_steps": 6, "errors": 0}


def test_what_runs_between_compiled_graphs_compiles_no_hook(stage) -> None:
    ended = stage.run(
        """
        import sys, warnings
        warnings.simplefilter("error")
        import torch
        from holdfast.contract import page
        from holdfast.rank import process

        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(),
                                             rank=0, world_size=1)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        model = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        compiled = torch.compile(model, backend="eager")
        for _ in range(4):
            compiled(torch.ones(2, 4)).mean().backward()
            optimizer.step()

        seen = [code() for code in torch._dynamo.convert_frame.input_codes.seen]
        ours = {code.co_name for code in seen if code and "holdfast" in code.co_filename}
        errors = process.current().word(page.Word.HOOK_ERRORS)
        steps = process.current().word(page.Word.STEP)
        print(len(seen) > 0, ours, errors, steps)
        """
    )
    assert ended.code == 0, ended.err
    # torch 2.10 prints how many peers gloo has connected.
    assert ended.out.splitlines()[-1] == "True set() 0 4"


def test_evaluating_is_told_from_training_and_an_empty_loader_is_idle(stage) -> None:
    ended = stage.run(
        """
        import torch
        from torch.utils.data import DataLoader
        from holdfast.rank import process

        recorder = process.current()
        loader = DataLoader(torch.ones(4, 2), batch_size=2)
        phases = []
        for batch in loader:
            phases.append(recorder.phase.name)
        phases.append(recorder.phase.name)
        with torch.no_grad():
            for batch in loader:
                phases.append(recorder.phase.name)
        print(*phases)
        """
    )
    assert ended.out.split() == ["FORWARD", "FORWARD", "IDLE", "EVALUATING", "EVALUATING"]


def test_a_fault_planted_in_the_hooks_is_counted_and_training_goes_on(stage) -> None:
    planted = """
    from holdfast.recording.recorder import Recorder
    import torch

    def broken(self, *_):
        raise ZeroDivisionError("planted")

    Recorder.end_step = broken
    """
    ended = stage.run(planted + TRAIN)
    assert ended.code == 0
    assert stage.word(Word.HOOK_ERRORS) == 10
    assert stage.word(Word.STEP) == 0
    (line,) = ended.err.splitlines()
    assert "ZeroDivisionError: planted" in line


def test_collectives_are_timed_and_counted_on_every_rank(stage) -> None:
    script = """
        import os, time
        import torch
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import all_reduce

        store = dist.FileStore("store", 2)
        dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).mean().backward()
            dist.all_reduce(torch.ones(1))
            all_reduce(torch.ones(1))
            if dist.get_rank() == 1:
                time.sleep(0.2)
            dist.all_reduce(torch.ones(1), async_op=True).wait()
            optimizer.step()
        dist.all_gather_object([None, None], "x")
        dist.barrier()
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)
        del model
        dist.destroy_process_group()
        """
    processes = [stage.start(script, stage.environment(rank, 2)) for rank in range(2)]
    for process in processes:
        ended = stage.end(process)
        assert ended.code == 0, ended.err
    waited = [[record.communicating_us for record in stage.records(rank)] for rank in range(2)]
    assert min(waited[0]) > 150_000 > max(waited[1])
    for rank in range(2):
        assert stage.word(Word.FLAGS, rank) & Flag.GROUP_INITIALISED
        assert not stage.word(Word.FLAGS, rank) & Flag.OTHER_BACKEND
        assert stage.word(Word.HOOK_ERRORS, rank) == 0
        entered = stage.word(Word.COLLECTIVES_ENTERED, rank)
        assert entered == stage.word(Word.COLLECTIVES_LEFT, rank)
        assert entered == 2 * 3 + 2
