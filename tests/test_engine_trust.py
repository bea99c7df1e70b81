"""C++ engines and kernels that are not to be trusted are not run, and the doctor does not count them."""

import contextlib
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from build_helpers import (
    ENGINE,
    LOAD,
    OPERATORS,
    OTHER,
    as_user,
    forge,
    in_child,
    needs_compiler,
    needs_root,
    own_folder,
    place,
    run,
    sources,
)

from kineticsim_env.runtime import build, cache, doctor, kernels, nvcc, nvrtc

__all__ = ["place", "sources"]  # fixtures


def foreign_library(folder, answer=666, engine=ENGINE + OPERATORS) -> bytes:
    """Compile a library that gives another answer."""
    (folder / "foreign.cpp").write_text(engine + f'extern "C" long ks_answer() {{ return {answer}; }}\n')
    command = [*shlex.split(build.find_cxx()), "-shared", "-fPIC", folder / "foreign.cpp", "-o", folder / "foreign.so"]
    subprocess.run(command, check=True)
    return (folder / "foreign.so").read_bytes()


def built_library(sources) -> Path:
    """Build the tiny engine and return its library."""
    assert run(sources, LOAD)[0] == "answer 42\n"
    [library] = (sources.parent / "cache").rglob("ks_cpu_*.so")
    return library


# ---- Libraries and kernels -----------------------------------------------------------------------------------------


@needs_root
@needs_compiler
def test_a_library_of_another_user_is_not_run(sources):
    library = built_library(sources)
    library.unlink()
    for path in forge(library, foreign_library(sources.parent)):
        os.chown(path, OTHER, OTHER)
    out, err, _ = run(sources, LOAD)
    assert out == "answer 42\n" and f"building {library} again: it belongs to user 12345" in err
    assert run(sources, LOAD) == ("answer 42\n", "", 0)


@needs_compiler
def test_a_library_that_is_cut_short_is_built_again(sources):
    """To load it is a bus error."""
    library = built_library(sources)
    content = library.read_bytes()
    library.write_bytes(content[:4096])
    out, err, code = run(sources, LOAD)
    assert (out, code) == ("answer 42\n", 0) and "is not what was built" in err
    assert run(sources, LOAD) == ("answer 42\n", "", 0)


@needs_compiler
def test_a_library_without_our_functions_is_built_again(sources):
    library = built_library(sources)
    library.unlink()
    forge(library, foreign_library(sources.parent, engine=""))
    out, err, _ = run(sources, LOAD)
    assert out == "answer 42\n", err
    assert f"{', '.join(build.CPU_FUNCTIONS)} not found in it" in err


@needs_compiler
def test_sources_without_our_functions_are_named(sources):
    (sources / "market_cpu.cpp").write_text(ENGINE.replace("ks_sizeof_params", "ks_sizeof_rows"))
    code = "from kineticsim_env.errors import EngineUnavailable\n"
    code += "try: build.load_cpu()\nexcept EngineUnavailable as error: print(error)"
    out, err, _ = run(sources, code)
    assert "was built, but it cannot be loaded: ks_sizeof_params not found in it" in out, (out, err)


@needs_root
@needs_compiler
def test_the_engine_is_loaded_from_a_read_only_cache(sources, place, monkeypatch):
    shutil.copytree(sources, place / "cuda")
    monkeypatch.setattr(build, "cuda_dir", lambda: place / "cuda")
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setattr(build, "_failed", {})

    def load():
        return build.load_cpu().ks_answer()

    assert in_child(load)[0] == 42  # root builds
    (place / "cache").chmod(0o555)
    assert as_user(OTHER, load) == (42, "")


class FakeKernel:
    def __init__(self, *functions):
        self.functions = functions


def load_image(image, entry):
    if not image.startswith(b"kernel"):
        raise RuntimeError("cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200)")
    return int(image.split()[1]), 0


KERNEL = """
extern "C" int ks_market_kernel_function(void** function) {
  *function = (void*)ANSWER;
  return CODE;
}
"""


@pytest.fixture
def load_kernel(monkeypatch):
    """Load a kernel anew: the way to the cache is the real one; GPU, compiler and driver are not."""
    monkeypatch.setattr(kernels, "cuda_unavailable", lambda: None)
    monkeypatch.setattr(nvrtc, "version", lambda: None)  # to take when nvcc's kernel cannot be loaded
    monkeypatch.setattr(kernels, "Kernel", FakeKernel)
    monkeypatch.setattr(nvrtc, "load_image", load_image)
    monkeypatch.setattr(nvrtc, "compile_kernel", lambda *_: b"kernel 42")
    monkeypatch.setattr(nvcc, "build_kernel", lambda *_: built_kernel(42))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)

    def load(builder):
        path = __file__ if builder == "nvcc" else ""
        monkeypatch.setattr(kernels, "choose_builder", lambda: kernels.Builder(builder, (13, 0), path))
        monkeypatch.setattr(build, "_loaded", {})
        monkeypatch.setattr(build, "_failed", {})  # where there is no GPU another test has failed to
        return kernels.load_kernel(torch.device("cuda", 0), {}).functions

    return load


@functools.cache
def built_kernel(answer, code=0, entry="ks_market_kernel") -> bytes:
    """Return a library such as nvcc builds."""
    text = KERNEL.replace("ANSWER", str(answer)).replace("CODE", str(code)).replace("ks_market_kernel", entry)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        source.write_text(text)
        subprocess.run([*shlex.split(build.find_cxx()), "-shared", "-fPIC", source, "-o", library], check=True)
        return library.read_bytes()


BUILDERS = [
    pytest.param("nvcc", "so", built_kernel, marks=needs_compiler),
    pytest.param("nvrtc", "cubin", lambda answer: b"kernel %d" % answer),
]


@needs_root
@pytest.mark.parametrize(("builder", "suffix", "made"), BUILDERS)
def test_a_kernel_of_another_user_is_not_run(place, load_kernel, builder, suffix, made):
    """Each load is in a process of its own: one that has loaded a library gets that again, whatever is at its path."""

    def load():
        return load_kernel(builder)

    assert in_child(load)[0] == (42, 0)
    [path] = (place / "cache").glob(f"kernel-sm_90-*.{suffix}")
    for spoil, said in (
        (lambda: [os.chown(file, OTHER, OTHER) for file in forge(path, made(666))], "it belongs to user 12345"),
        (lambda: path.write_bytes(made(666)), "it is not what was built"),
    ):
        spoil()
        found, err = in_child(load)
        assert found == (42, 0) and f"building {path} again: {said}" in err
    assert in_child(load) == ((42, 0), "")
    forge(path, made(666))
    assert in_child(load) == ((666, 0), ""), "what is forged here would run"


@needs_compiler
@pytest.mark.parametrize(
    ("builder", "suffix", "content", "said"),
    [
        ("nvrtc", "cubin", lambda: b"no image", "cuModuleLoadData"),
        ("nvcc", "so", lambda: b"no library", "file too short|invalid ELF header"),
        ("nvcc", "so", lambda: built_kernel(666, code=209), r"cudaGetFuncBySymbol\(ks_market_kernel\): error 209"),
        ("nvcc", "so", lambda: built_kernel(666, entry="ks_other"), "ks_market_kernel not found in it"),
    ],
    ids=["no image", "no library", "no function for this GPU", "another entry"],
)
def test_a_kernel_that_cannot_be_loaded_is_built_again(place, load_kernel, builder, suffix, content, said):
    """And the new library is the one that is used, though its path is that of the old one."""
    assert in_child(lambda: load_kernel(builder))[0] == (42, 0)
    [path] = (place / "cache").glob(f"*.{suffix}")
    forge(path, content())
    found, err = in_child(lambda: load_kernel(builder))
    assert found == (42, 0), (found, err)
    assert re.search(f"building {path} again: it cannot be loaded: .*({said})", err), err


# ---- Doctor --------------------------------------------------------------------------------------------------------


def test_the_doctor_counts_what_would_be_used(place):
    for name in ("first.so", "second.so", "third.cubin"):
        cache.obtain(name, lambda path, content: content, lambda folder: b"built")
    (place / "cache" / "second.so").write_bytes(b"rotten")
    cache.digest_path(place / "cache" / "third.cubin").unlink()
    text = doctor.report()
    assert f"{place / 'cache'}: 1 builds" in text and "2 more that cannot be trusted and will be built again" in text


@needs_root
def test_the_doctor_names_a_read_only_cache_and_the_folder_beside_it(place):
    cache.obtain("first.so", lambda path, content: content, lambda folder: b"built")
    (place / "cache").chmod(0o555)
    text, _ = as_user(OTHER, doctor.report)
    assert f"{place / 'cache'}: 1 builds" in text and f"{own_folder(place, OTHER)}: 0 builds" in text, text
