"""What the launcher, the hooks and checkpoints stand on in torch without its promise: one table.

Run against every torch that is promised (`make matrix`): a part that is gone, or takes other
arguments, fails in one line that names it. The syntax trees of our code keep the table whole.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import pkgutil
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.config.settings import BadInput  # noqa: E402
from holdfast_sidecar.launcher.rank_process import ranks_started_by, start_cold  # noqa: E402

REPOSITORY = Path(__file__).parents[3]


class Part(NamedTuple):
    """One part of torch. It has to be there, as itself or as `self.name` of its class."""

    path: str
    needed_for: str
    begins: tuple[str, ...] | None = None
    """Its first parameters, after self."""
    accepts: tuple[str, ...] = ()
    """Parameters at any place; of what is written in C, by its docstring."""
    used_by: tuple[str, str] = ("", "")
    """A function of torch, and what its source must contain for our part in it to be asked."""
    works: Callable[[Any], Any] = id
    """Calls it as we do."""
    since: tuple[int, int] = (2, 10)
    """The first torch in `make matrix` that has it; with older ones our code does without."""


AGENT = "torch.distributed.elastic.agent.server.local_elastic_agent.LocalElasticAgent"
SIMPLE_AGENT = "torch.distributed.elastic.agent.server.api.SimpleElasticAgent"
PROCESSES = "torch.distributed.elastic.multiprocessing.api"
HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler"
GROUPS = "torch.distributed.distributed_c10d"
FILES = "torch.distributed.checkpoint.filesystem"
LOADER = "torch.utils.data.dataloader"
DDP = "torch.nn.parallel.DistributedDataParallel"
PROFILE = "torch.autograd.profiler.profile"
FRAMES = "torch._dynamo.eval_frame"


def _copy(copy: Callable[..., Any]) -> None:
    into, out_of = torch.zeros(2), torch.ones(2)
    copy([into], [out_of], non_blocking=False)
    assert into.equal(out_of)


def _hook_node(_: Any) -> None:
    carrier, heard = torch.empty(1), []
    carrier._backward_hooks = {0: lambda *_: heard.append(1)}
    loss = torch.ones(1, requires_grad=True) * 1
    loss.grad_fn._register_hook_dict(carrier)
    loss.backward()
    assert heard


def _queue_in_a_pass(queue: Callable[..., Any]) -> None:
    heard: list[int] = []
    loss = torch.ones(1, requires_grad=True) * 1
    loss.register_hook(lambda _: queue(lambda: heard.append(torch._C._current_graph_task_id())))
    loss.backward()
    assert heard


def _log_level(_: Any) -> None:
    library = Path(torch.__file__).with_name("lib") / "libc10.so"
    ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_log_level")


def _skip_below(below: Callable[..., Any]) -> None:
    from torch._dynamo.types import FrameAction, FrameExecStrategy

    below(_skip_below.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


PARTS = (
    # The launcher: methods that it overrides, which torch must go on calling.
    Part(f"{AGENT}._shutdown", "ending ranks", ("death_sig",),
         used_by=(f"{SIMPLE_AGENT}.run", "self._shutdown(")),
    Part(f"{AGENT}._stop_workers", "ending an attempt", ("worker_group",)),
    Part(f"{AGENT}._start_workers", "starting ranks", ("worker_group",),
         used_by=(f"{SIMPLE_AGENT}._initialize_workers", "self._start_workers(worker_group)")),
    Part(f"{AGENT}._initialize_workers", "starting an attempt", ("worker_group",),
         used_by=(f"{SIMPLE_AGENT}._initialize_workers", "self._rendezvous(worker_group)")),
    Part(f"{AGENT}._invoke_run", "the agent's loop", ("role",),
         used_by=(f"{SIMPLE_AGENT}.run", "self._invoke_run(role)")),
    Part(f"{AGENT}._assign_worker_ranks", "the numbers of ranks",
         ("store", "group_rank", "group_world_size", "spec"),
         used_by=(f"{SIMPLE_AGENT}._rendezvous", "self._assign_worker_ranks(")),
    # What it reads and sets of torch's agent.
    Part(AGENT, "the options of torch's agent",
         accepts=("logs_specs", "start_method", "log_line_prefix_template")),
    Part(f"{AGENT}._pcontext", "the ranks' processes"),
    Part(f"{SIMPLE_AGENT}._worker_group", "the ranks of an attempt"),
    Part(f"{SIMPLE_AGENT}._store", "ending an attempt's store",
         used_by=(f"{SIMPLE_AGENT}._rendezvous", "self._store = store")),
    Part(f"{SIMPLE_AGENT}._remaining_restarts", "the restart count of ranks and logs",
         used_by=(f"{AGENT}._start_workers", "spec.max_restarts - self._remaining_restarts")),
    # Looked up by torch in a module, where the launcher puts its own.
    Part(f"{PROCESSES}.get_subprocess_handler", "starting ranks",
         used_by=(f"{PROCESSES}.SubprocessContext._start", "get_subprocess_handler(")),
    Part(f"{PROCESSES}._terminate_process_handler", "signals to the launcher while ranks start",
         used_by=(f"{PROCESSES}.PContext.start", "_terminate_process_handler")),
    Part(f"{HANDLER}._popen", "starting ranks", ("args", "env"),
         used_by=(f"{HANDLER}.__init__", "self._popen(")),
    Part(f"{HANDLER}._stdout", "log files of ranks"),
    Part(f"{HANDLER}._stderr", "log files of ranks"),
    Part(f"{HANDLER}.local_rank_id", "warm interpreters"),
    Part(f"{HANDLER}.proc", "exit codes of ranks"),
    # Kept by torch about ranks that are functions (--run-path).
    Part(f"{PROCESSES}.MultiprocessContext._pc", "exit codes with --run-path"),
    Part(f"{PROCESSES}.MultiprocessContext._ret_vals", "return values with --run-path"),
    Part(f"{PROCESSES}.MultiprocessContext._return_values", "return values with --run-path"),
    Part(f"{PROCESSES}.MultiprocessContext._worker_finished_event", "the end with --run-path"),
    Part(f"{PROCESSES}.MultiprocessContext._is_done", "the end with --run-path", ()),
    # The attempt's own store, and the command line.
    Part("torch.distributed.TCPStore.__init__", "a store on a socket that is open already",
         accepts=("master_listen_fd",)),
    Part("torch.distributed.elastic.rendezvous.RendezvousInfo", "the rendezvous",
         ("store", "rank", "world_size", "bootstrap_store_info")),
    Part("torch.distributed.elastic.utils.macros.substitute", "arguments of warm interpreters",
         works=lambda macros: macros(["a"], "0")),
    Part("torch.distributed.run.config_from_args", "torchrun's options", ("args",)),
    Part("torch.distributed.run.determine_local_world_size", "--nproc-per-node",
         works=lambda count: count("3")),
    Part("torch.distributed.run.get_args_parser", "torchrun's options",
         works=lambda parser: parser().parse_args(["a.py"]).signals_to_handle),
    # Process groups.
    Part(f"{GROUPS}._world.pg_names", "who is in which group"),
    Part(f"{GROUPS}._world.pg_group_ranks", "who is in which group"),
    Part(f"{GROUPS}._world.pg_backend_config", "whether gloo is all that groups use"),
    Part(f"{GROUPS}._world.default_pg", "the slot of the default group"),
    Part(f"{GROUPS}._new_group_with_tag", "groups by new_group",
         used_by=(f"{GROUPS}.new_group", "_new_group_with_tag(")),
    Part(f"{GROUPS}._register_pg_in_world", "groups by split_group",
         used_by=(f"{GROUPS}.split_group", "_register_pg_in_world("), since=(2, 13)),
    Part(f"{GROUPS}.destroy_process_group", "the end of groups", ("group",)),
    Part(f"{GROUPS}._get_default_store", "votes of ranks over checkpoints", ()),
    Part(f"{GROUPS}._set_pg_timeout", "how long ranks that save wait for the slowest",
         ("timeout", "group")),
    Part("torch._C._distributed_c10d._WorkerServer.__init__", "gloo's flight recorder",
         accepts=("host_or_file",)),
    Part("torch._C", "the worker server without its warning", works=_log_level),
    Part("torch.distributed._functional_collectives.wait_tensor", "waits of DTensor and FSDP",
         ("tensor",)),
    Part("torch.distributed._functional_collectives.all_reduce", "collectives of DTensor and FSDP",
         ("self",)),
    Part("torch.distributed.device_mesh.DeviceMesh._dim_group_names", "groups given as meshes"),
    Part("torch.distributed.pipelining.stage._PipelineStageBase.stage_index", "pipeline stages"),
    Part("torch.distributed.pipelining.stage._PipelineStageBase.num_stages", "pipeline stages"),
    Part("torch.distributed.pipelining.schedules._PipelineSchedule._n_microbatches",
         "micro-batches of a pipeline"),
    # DDP.
    Part("torch.distributed._broadcast_coalesced", "waits for DDP's buffers"),
    Part("torch.distributed.Reducer.prepare_for_backward", "what DDP sends in a backward pass"),
    Part(f"{DDP}.reducer", "what DDP sends in a backward pass"),
    Part(f"{DDP}._get_ddp_logging_data", "the sizes of DDP's buckets", ()),
    Part(f"{DDP}.parameters_to_ignore", "which parameters every rank holds alike"),
    # Backward passes, gradients and optimizers.
    Part("torch.autograd.graph.Node._register_hook_dict", "waits of backward passes",
         works=_hook_node),
    Part("torch.Tensor._backward_hooks", "waits of backward passes"),
    Part("torch.autograd.Variable._execution_engine.queue_callback", "waits of backward passes",
         works=_queue_in_a_pass),
    Part("torch._C._current_graph_task_id", "collectives in the engine's threads",
         works=lambda number: number()),
    Part("torch.Tensor._version", "gradients that wait, and snapshots of weights that change"),
    Part("torch.optim.optimizer.register_optimizer_step_pre_hook", "the end of a step", ("hook",)),
    Part("torch.optim.optimizer.register_optimizer_step_post_hook", "the end of a step", ("hook",)),
    # The compiler.
    Part(f"{FRAMES}.skip_code", "compiled scripts without our frames", ("code",)),
    Part(f"{FRAMES}.set_code_exec_strategy", "compiled scripts without our frames",
         works=_skip_below),
    Part("torch._dynamo.types.FrameAction.SKIP", "compiled scripts without our frames"),
    Part("torch._dynamo.types.FrameExecStrategy", "compiled scripts without our frames"),
    Part("torch._dynamo.on_compile_start", "the phase of compiling", ("callback",)),
    Part("torch._dynamo.on_compile_end", "the phase of compiling", ("callback",)),
    Part("torch._dynamo.compiled_autograd.compiled_autograd_enabled", "waits of backward passes"),
    Part("torch._dynamo.utils.counters", "FLOPs, which compiled code can't count",
         works=lambda counters: counters.values()),
    Part(f"{FRAMES}.OptimizedModule._orig_mod", "names of weights in compiled models"),
    # Data loaders.
    Part(f"{LOADER}._BaseDataLoaderIter.__next__", "time that data takes", ()),
    Part(f"{LOADER}._BaseDataLoaderIter._sampler_iter", "the position in the data"),
    Part(f"{LOADER}._MultiProcessingDataLoaderIter.__init__", "workers through SIGTERM",
         ("loader",)),
    Part(f"{LOADER}._MultiProcessingDataLoaderIter._workers", "workers through SIGTERM"),
    Part("torch.utils.data._utils.signal_handling._remove_worker_pids", "workers through SIGTERM",
         used_by=(f"{LOADER}._MultiProcessingDataLoaderIter", "_remove_worker_pids(id(self))")),
    # Traces on request.
    Part(f"{PROFILE}.entered", "traces beside a script's profiler"),
    Part(f"{PROFILE}.kineto_results", "traces beside a script's profiler"),
    Part(f"{PROFILE}._prepare_trace", "traces that give way to a script's", ()),
    Part(f"{PROFILE}._start_trace", "traces that give way to a script's", ()),
    Part("torch.autograd._profiler_enabled", "traces beside a script's profiler",
         works=lambda enabled: enabled()),
    # Checkpoints and snapshots.
    Part("torch.distributed.checkpoint.save", "saving without a group", accepts=("no_dist",)),
    Part("torch.distributed.checkpoint.load", "loading without a group", accepts=("no_dist",)),
    Part(f"{FILES}.FileSystemWriter", "writing checkpoints",
         accepts=("path", "sync_files", "overwrite")),
    Part(f"{FILES}.FileSystemReader", "reading checkpoints", ("path",)),
    *(Part(f"{FILES}.FileSystem{kind}.{name}", f"{needed_for} checkpoints in any storage")
      for kind, needed_for in (("Reader", "reading"), ("Writer", "writing"))
      for name in ("fs", "path")),
    Part(f"{FILES}.FileSystemReader.read_metadata", "reading an index that runs nothing",
         used_by=("torch.distributed.checkpoint.state_dict_loader._load_state_dict",
                  "storage_reader.read_metadata")),
    Part(f"{FILES}.FileSystemBase.create_stream", "files of checkpoints", ("path", "mode")),
    Part(f"{FILES}.FileSystemBase.concat_path", "files of checkpoints", ("path", "suffix")),
    Part(f"{FILES}.FileSystemBase.rename", "files of checkpoints", ("path", "new_path")),
    Part(f"{FILES}.FileSystemBase.init_path", "files of checkpoints", ("path",)),
    Part(f"{FILES}.FileSystemBase.mkdir", "files of checkpoints", ("path",)),
    Part(f"{FILES}.FileSystemBase.exists", "files of checkpoints", ("path",)),
    Part(f"{FILES}.FileSystemBase.rm_file", "files of checkpoints", ("path",)),
    Part(f"{FILES}._StorageInfo", "the index of checkpoints",
         ("relative_path", "offset", "length")),
    Part("torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", "the index of checkpoints"),
    Part("torch.serialization._get_layout", "the index of checkpoints"),
    Part("torch.distributed.tensor._utils.compute_local_shape_and_global_offset",
         "snapshots of DTensors", ("global_shape", "mesh", "placements")),
    Part("torch.distributed.fsdp.FSDPModule.reshard", "checkpoints of FSDP2", ()),
    Part("torch._foreach_copy_", "copying into snapshots", works=_copy),
)  # fmt: skip

NOT_TORCHS = {
    "Python": "_exit _fields _asdict _make _replace _forkserver _preload_modules _popen "
    "_run_module_as_main _is_gil_enabled _current_frames",
    "NVML": "_nvmlGetFunctionPointer",
    "Accelerate, Transformers": "_models _save_checkpoint _load_from_checkpoint",
    "torchdata": "_StatefulMultiProcessingDataLoaderIter",
    "our own": "_furnish _is_silent _last_sign_s _running_at",
    "Slurm": "_TIME",
}
"""Underscore names that our code reads of others than torch, outside `self`."""


def wrong(part: Part) -> str:
    """What of this part is not as we need it; empty: nothing."""
    try:
        found = pkgutil.resolve_name(part.path)
    except (ImportError, AttributeError):
        owner, _, name = part.path.rpartition(".")
        return "" if _is_kept(owner, name) else "is gone"
    if part.begins is not None and (known := parameters(found))[: len(part.begins)] != part.begins:
        return f"takes {known}, where {part.begins} is given"
    if missing := [name for name in part.accepts if not accepts(found, name)]:
        return f"does not take {', '.join(missing)}"
    caller, text = part.used_by
    if caller and text not in inspect.getsource(pkgutil.resolve_name(caller)):
        return f"is not used by {caller} as `{text}`"
    try:
        part.works(found)
    except Exception as error:
        return f"does not work as we call it: {type(error).__name__}: {error}"
    return ""


def _is_kept(owner: str, name: str) -> bool:
    try:
        return has(pkgutil.resolve_name(owner), name)
    except (ImportError, AttributeError):
        return False


def has(kind: Any, name: str) -> bool:
    """Whether objects of this class have it, by the class or by torch's source of its methods."""
    above = [one for one in getattr(kind, "__mro__", ()) if one.__module__.startswith("torch")]
    return hasattr(kind, name) or any(
        re.search(rf"\bself\.{name}\b", inspect.getsource(one)) for one in above
    )


def parameters(function: Any) -> tuple[str, ...]:
    """After self, which an unbound method has."""
    names = tuple(inspect.signature(function).parameters)
    is_method = inspect.isfunction(function) and "." in function.__qualname__
    return names[1:] if is_method and names[:1] == ("self",) else names


def accepts(function: Any, name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters or name in (function.__doc__ or "")
    except ValueError:
        return name in (function.__doc__ or "")


def report(part: Part, lack: str) -> str:
    return f"torch {torch.__version__}: {part.path} {lack}; it is needed for {part.needed_for}"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.path.removeprefix("torch."))
def test_part(part: Part) -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < part.since:
        pytest.skip("this torch has none, and our code does without")
    if lack := wrong(part):
        pytest.fail(report(part, lack), pytrace=False)


@pytest.mark.parametrize(
    ("part", "lack"),
    [
        (Part("torch._not_there", ""), "is gone"),
        (Part("torch._not_there.either", ""), "is gone"),
        (Part(f"{DDP}._not_there", ""), "is gone"),
        (Part(f"{AGENT}._shutdown", "", ("signal",)), "takes ('death_sig'"),
        (Part(AGENT, "", accepts=("colour",)), "does not take colour"),
        (Part(AGENT, "", used_by=(f"{AGENT}._shutdown", "no such")), "is not used by"),
        (Part("torch._foreach_copy_", "", works=lambda copy: copy(1)), "does not work"),
    ],
)
def test_a_part_that_is_not_as_we_need_it_is_named_in_one_line(part: Part, lack: str) -> None:
    assert lack in wrong(part)
    assert report(part, "is gone").count(part.path) == 1


def test_ranks_that_torch_starts_by_another_way_are_refused() -> None:
    """Else they would have no hooks, no session of their own and no parent-death signal."""
    with (
        pytest.raises(BadInput, match=f"PyTorch {torch.__version__.partition('+')[0]}"),
        ranks_started_by(start_cold, dict),
    ):
        subprocess.run(["true"], check=True)  # torch would start them itself


class Reading:
    """What one module of ours reads of torch's private parts."""

    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self._names = {"torch": "torch"}
        """What a name of the module stands for, as far as it is torch's."""
        self._imported: list[str] = []
        for node in ast.walk(self._tree):
            self._take_import(node)

    def _take_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found = [(one.asname, one.name) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(one.asname or one.name, f"{node.module}.{one.name}") for one in node.names]
        else:
            return
        torchs = [(name, path) for name, path in found if path.split(".")[0] == "torch"]
        self._imported += [path for _, path in torchs]
        self._names |= {name: path for name, path in torchs if name}

    def private(self) -> Iterator[str]:
        """Paths from torch on, and single names of what is not known by its path."""
        yield from filter(is_private, self._imported)
        touches = bool(self._imported) or any(map(_names_torch, ast.walk(self._tree)))
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                yield from self._attribute(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                is_name = touches and node.value.isidentifier()
                if is_private(node.value) and (is_name or _is_path(node.value)):
                    yield node.value
            elif isinstance(node, ast.ClassDef):
                yield from self._inherited(node)

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        path = self._path(node)
        if path:
            yield path
        elif ast.unparse(node.value) not in ("self", "cls"):
            yield node.attr

    def _path(self, node: ast.AST) -> str:
        """From torch on; empty where it does not begin there."""
        if isinstance(node, ast.Attribute):
            if node.attr == "_torch":
                return "torch"
            inner = self._path(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        return self._names.get(node.id, "") if isinstance(node, ast.Name) else ""

    def _inherited(self, node: ast.ClassDef) -> Iterator[str]:
        """Of a class of torch's that this one is derived from."""
        said = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        said |= {
            one.attr
            for one in ast.walk(node)
            if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self"
        }
        for base in filter(None, map(self._path, node.bases)):
            kind = pkgutil.resolve_name(base)
            yield from (one for one in said if is_private(one) and has(kind, one))


def is_private(path: str) -> bool:
    """Whether a part of it has one underscore in front, and a letter behind."""
    return any(part[:1] == "_" and part[1:2].isalpha() for part in path.split("."))


def _is_path(text: str) -> bool:
    return text.startswith("torch.") and all(part.isidentifier() for part in text.split("."))


def _names_torch(node: ast.AST) -> bool:
    named = (getattr(node, "id", ""), getattr(node, "arg", ""), getattr(node, "attr", ""))
    return bool({"torch", "_torch"}.intersection(map(str, named)))


def unlisted(source: str) -> list[str]:
    """Private names of torch that this module of ours reads and the table lacks."""
    listed = [part.path for part in PARTS]
    names = {name for path in listed for name in path.split(".")}
    names |= {name for those in NOT_TORCHS.values() for name in those.split()}

    def is_listed(found: str) -> bool:
        if "." not in found:
            return found in names
        return any(f"{path}.".startswith(f"{found}.") for path in listed)

    return sorted({found for found in Reading(source).private() if not is_listed(found)})


def test_the_table_names_every_private_part_of_torch_that_our_code_reads() -> None:
    ours = [path for top in ("hooks", "sidecar") for path in (REPOSITORY / top).rglob("*.py")]
    assert len(ours) > 440
    found = [
        f"{path.relative_to(REPOSITORY)} reads {name} of torch: add it to PARTS with its reason"
        for path in sorted(ours)
        for name in unlisted(path.read_text())
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch\ntorch._made_up(1)", "torch._made_up"),
        ("def f(torch): torch.cuda._made_up", "torch.cuda._made_up"),
        ("self._torch._C._made_up", "torch._C._made_up"),
        ("import torch.distributed as dist\ndist._made_up", "torch.distributed._made_up"),
        ("from torch import distributed\ndistributed._made", "torch.distributed._made"),
        ("from torch._dynamo import config", "torch._dynamo.config"),
        ("import torch._inductor", "torch._inductor"),
        ("def f(torch): getattr(torch, '_made_up', None)", "_made_up"),
        ("importing.once('torch._inductor', f)", "torch._inductor"),
        ("def f(model): model._made_up", "_made_up"),
        (
            "from torch.nn.parallel import DistributedDataParallel\n"
            "class A(DistributedDataParallel):\n def _sync_buffers(self): ...",
            "_sync_buffers",
        ),
        (
            "from torch.nn.parallel import DistributedDataParallel as D\n"
            "class A(D):\n def f(self): self._delay_all_reduce_params",
            "_delay_all_reduce_params",
        ),
    ],
)
def test_a_private_part_that_the_table_lacks_is_found(source: str, name: str) -> None:
    assert unlisted(source) == [name]
