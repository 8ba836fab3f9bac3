"""Compiles the fake library. Needs a C compiler, so only tests and demonstrations use it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from holdfast.environment import FAKE_NVML
from holdfast_sidecar.demo.fake_nvml import layout

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
"""The name by which nvidia-ml-py asks the dynamic loader for it."""
STATE_VARIABLE = FAKE_NVML
"""Environment variable that names the library's state file; spelled in fake_nvml.c too."""


class CompilerMissingError(Exception):
    """There is no `cc` on this machine."""


class CompilationFailedError(Exception):
    """The compiler refused the source: it says why."""


def build(directory: Path, without: Iterable[str] = ()) -> Path:
    """Compile into the directory, which then goes to the front of LD_LIBRARY_PATH.

    `without` names functions that the library shall not have, as an older driver's has not.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise CompilerMissingError("no C compiler: cc is not installed")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY
    with tempfile.TemporaryDirectory(prefix="holdfast-nvml-") as made:
        Path(made, "layout.h").write_text(layout.header())
        script = Path(made, "exports")
        script.write_text(f"{{ global: *; {_local(without)} }};\n")
        command = [compiler, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-I", made]
        command += [f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={script}"]
        command += ["-o", str(library), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompilationFailedError(f"cc refused {SOURCE.name}: {done.stderr[-2000:]}")
    return library


def _local(names: Iterable[str]) -> str:
    listed = " ".join(f"{name};" for name in names)
    return f"local: {listed}" if listed else ""


def environment(library: Path, state: Path) -> dict[str, str]:
    """What a process needs in its environment to see the fake GPUs."""
    return {"LD_LIBRARY_PATH": str(library.parent), STATE_VARIABLE: str(state)}
