"""Where the C++ and CUDA sources are, and hashes of them. Uses Python alone: a wheel is built without torch."""

import hashlib
from collections.abc import Sequence
from pathlib import Path


def cuda_dir() -> Path:
    """Return the folder of the C++ and CUDA sources: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "_cuda"
    return inside if inside.is_dir() else package.parent / "cuda"


def engine_hash(folder: Path) -> str:
    """Return the sha256 of what C++ libraries are built of, which a wheel has as a checkout has it."""
    return hash_of(folder, (".h", ".cpp"), without=("baselines",))


def hash_of(root: Path, suffixes: Sequence[str], without: Sequence[str] = ()) -> str:
    """Return the sha256 over names and contents of a folder's files with these suffixes, but not of some folders."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in suffixes and path.parent.name not in without:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
