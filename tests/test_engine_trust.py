"""C++ engines and cubins that are not to be trusted are not run, and the doctor does not count them."""

import contextlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import torch
from build_helpers import (
    ENGINE,
    LOAD,
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

from kineticsim_env.runtime import build, cache, cuda_driver, doctor

__all__ = ["place", "sources"]  # fixtures


def foreign_library(folder, answer=666, engine=ENGINE) -> bytes:
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


# ---- Libraries and cubins ------------------------------------------------------------------------------------------


@needs_root
@needs_compiler
def test_a_library_of_another_user_is_not_run(sources):
    library = built_library(sources)
    (sources.parent / "cache").chmod(0o1777)
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
    assert "ks_cpu_launch, ks_sizeof_launch, ks_sizeof_params not found in it" in err


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
    def __init__(self, image, entry):
        if not image.startswith(b"kernel"):
            raise RuntimeError("cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200)")
        self.image = image


@needs_root
def test_a_cubin_of_another_user_is_not_run(place, monkeypatch, capsys):
    """The way to the cache is the real one; GPU, compiler and driver are not."""
    monkeypatch.setattr(build, "cuda_unavailable", lambda: None)
    monkeypatch.setattr(build, "find_nvcc", lambda: __file__)
    monkeypatch.setattr(build, "compile_kernel", lambda *_: b"kernel 42")
    monkeypatch.setattr(cuda_driver, "Kernel", FakeKernel)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)

    def load():
        monkeypatch.setattr(build, "_loaded", {})
        return build.load_kernel(torch.device("cuda", 0), {}).image

    assert load() == b"kernel 42"
    [cubin] = (place / "cache").glob("*.cubin")
    for spoil, said in (
        (lambda: [os.chown(path, OTHER, OTHER) for path in forge(cubin, b"kernel 666")], "it belongs to user 12345"),
        (lambda: cubin.write_bytes(b"kernel 666"), "it is not what was built"),
        (lambda: forge(cubin, b"no image"), "it cannot be loaded: cuModuleLoadData"),
    ):
        capsys.readouterr()
        spoil()
        assert load() == b"kernel 42"
        assert f"building {cubin} again: {said}" in capsys.readouterr().err
    capsys.readouterr()
    assert load() == b"kernel 42" and capsys.readouterr().err == ""


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
