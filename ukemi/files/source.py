"""Robot files: from whatever the user has in hand to a compiled `mujoco.MjModel`."""

import contextlib
import difflib
import os
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import mujoco

from ukemi.errors import ModelFileError

Source = str | os.PathLike | mujoco.MjModel | mujoco.MjSpec
Parsed = tuple[mujoco.MjModel, mujoco.MjSpec | None]

_FILE_SUFFIXES = (".xml", ".mjcf", ".urdf")


def read(source: Source) -> mujoco.MjModel:
    """The compiled model of a robot file; see `parse`."""
    return parse(source)[0]


def parse(source: Source) -> Parsed:
    """The compiled model of a robot file, and the description that it was compiled from.

    Args:
        source: path of an MJCF or URDF file, MJCF or URDF text, the name of a built-in model
            (`builtin_names`), a `mujoco.MjSpec` (compiled here) or a `mujoco.MjModel` (returned as it is,
            without a description).

    Raises:
        ModelFileError: the file is missing, malformed or does not compile.
    """
    if isinstance(source, str):
        return _read_str(source)
    if isinstance(source, os.PathLike):
        return _read_file(Path(os.fsdecode(source)))
    if isinstance(source, mujoco.MjModel):
        return source, None
    if isinstance(source, mujoco.MjSpec):
        return _compile(lambda: source, label(source), source)
    raise ModelFileError(
        f"a model cannot be loaded from a {type(source).__name__}: pass the path of an MJCF or URDF file, "
        "its text, the name of a built-in model, a mujoco.MjSpec or a mujoco.MjModel"
    )


def builtin_names() -> list[str]:
    """Names of the models that come with Ukemi, sorted."""
    entries = (resources.files("ukemi") / "models").iterdir()
    return sorted(entry.name.removesuffix(".xml") for entry in entries if entry.name.endswith(".xml"))


def builtin_text(name: str) -> str:
    """The file of a model that comes with Ukemi."""
    return (resources.files("ukemi") / "models" / f"{name}.xml").read_text(encoding="utf-8")


def label(source: Source) -> str:
    """How error messages and reports refer to `source`."""
    if isinstance(source, str) and _is_text(source):
        return "XML text"
    if isinstance(source, str) and _is_name(source):
        return f"built-in model '{source}'"
    if isinstance(source, str | os.PathLike):
        return f"'{source}'"
    if isinstance(source, mujoco.MjSpec):
        return f"MjSpec '{source.modelname}'"
    return type(source).__name__


def _is_text(source: str) -> bool:
    return "<" in source


def _is_name(source: str) -> bool:
    """Whether `source` can only be meant as the name of a built-in model."""
    return source in builtin_names() or (source.isidentifier() and not _exists(Path(source)))


def _exists(path: Path) -> bool:
    """Whether there is such a file; none has a name that no file can have, such as one of 5000 letters."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


_SHOWN = 80  # characters of what cannot be a path that a message shows


def _refuse_other_kinds(source: str) -> None:
    """Say what a text is that is taken for the path of a file, but cannot be one."""
    shown = repr(source if len(source) <= _SHOWN else source[:_SHOWN] + "…")
    kinds = {
        "is an address, which is not looked up: pass the path of the file": re.match(r"(file|package)://", source),
        "is a web address: download the file and pass its path": re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", source),
        "is JSON: robots are described in MJCF or URDF, which are XML": source.lstrip()[:1] in ("{", "["),
        "holds a null character, as no path does: pass binary data as a file": "\0" in source,
        f"has {len(source)} characters, more than a path can have": any(len(p) > 255 for p in Path(source).parts)
        or len(source) > 4000,
    }
    for kind, meant in kinds.items():
        if meant and not _exists(Path(source)):
            raise ModelFileError(f"{shown} {kind}. A model is a path, XML text or a built-in name")


_MACRO = re.compile(r"<xacro:|\$\{|\$\(")
_MASSLESS = re.compile(r"""\bmass\s*=\s*["']\s*[+-]?nan""", re.IGNORECASE)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _check_text(text: str, where: str) -> None:
    """Refuse a description that would load as something else than it says."""
    if not text.strip():
        raise ModelFileError(f"robot file {where} is empty")
    if text.lstrip()[:1] in ("{", "["):
        raise ModelFileError(f"{where} is JSON; robots are described in MJCF or URDF, which are XML")
    if "\0" in text or "\ufffd" in text[:2] or _has_surrogates(text):
        raise ModelFileError(f"{where} is not text in UTF-8, as robot files are: save it in that encoding")
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)  # xacro itself leaves comments
    root = re.search(r"<\s*([A-Za-z_][\w:.-]*)", text)
    name = root[1] if root else ""
    rest = text.partition(f"</{name}>")[2].strip()
    if rest:
        raise ModelFileError(f"{where} goes on after its end, </{name}>: remove {rest[:_SHOWN]!r}")
    urdf = name == "robot"
    if urdf and _MACRO.search(text):
        raise ModelFileError(f"{where} holds xacro macros: expand them first, xacro robot.xacro > robot.urdf")
    if urdf and "<joint" not in text:
        raise ModelFileError(f"{where} is a URDF in which nothing is joined: without a <joint> no link can move")
    if _MASSLESS.search(text):
        raise ModelFileError(f"{where} holds a mass of NaN, which MuJoCo takes for none given: correct or remove it")


def _read_str(source: str) -> Parsed:
    if _is_text(source):
        _check_text(source, label(source))
        return _compile(lambda: mujoco.MjSpec.from_string(source), label(source), source)
    if not source.strip():
        raise ModelFileError("the model source is an empty string: pass a file's path, its text or a built-in name")
    if source in builtin_names():
        text = builtin_text(source)
        return _compile(lambda: mujoco.MjSpec.from_string(text), label(source), text)
    _refuse_other_kinds(source)
    if _is_name(source):
        raise ModelFileError(f"there is no built-in model '{source}', and no such file{_suggestion(source)}")
    return _read_file(Path(source))


def _read_file(path: Path) -> Parsed:
    _refuse_other_kinds(os.fspath(path))
    with contextlib.suppress(RuntimeError):  # there is no such user
        path = path.expanduser()
    if not _exists(path):
        meant = _suggestion(path.stem) if path.parent == Path() else ""  # a built-in name has no folder
        raise ModelFileError(f"robot file '{path}' does not exist (looked for '{path.absolute()}'){meant}")
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.suffix.lower() in _FILE_SUFFIXES)
        hint = f": pass one of its files ({', '.join(inside[:8])})" if inside else " without MJCF or URDF files"
        raise ModelFileError(f"'{path}' is a directory{hint}")
    if path.suffix.lower() == ".mjb":
        raise ModelFileError(f"'{path}' is a compiled model: pass mujoco.MjModel.from_binary_path(...) of it")
    if path.suffix.lower() in (".stl", ".obj", ".msh", ".dae"):
        raise ModelFileError(f"'{path}' is a mesh: pass the robot file that refers to it")
    if not path.is_file():
        raise ModelFileError(f"'{path}' is no ordinary file")
    try:
        _check_text(path.read_bytes().decode(errors="replace"), f"'{path}'")
    except OSError as error:
        raise ModelFileError(f"robot file '{path}' cannot be read: {error.strerror}") from error
    return _compile(lambda: mujoco.MjSpec.from_file(os.fspath(path)), f"'{path}'", path)


def _suggestion(name: str) -> str:
    names = builtin_names()
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    if close:
        return f". Did you mean the built-in {' or '.join(repr(c) for c in close)}?"
    return f". Built-in models: {', '.join(names)}" if name.isidentifier() else ""


def _compile(
    describe: Callable[[], mujoco.MjSpec], where: str, source: str | Path | mujoco.MjSpec
) -> tuple[mujoco.MjModel, mujoco.MjSpec]:
    """Run MuJoCo's parser and compiler and turn their exceptions into one that says what, where and what to do."""
    try:
        spec = describe()
        model = spec.compile()
        model.names.decode()
        return model, spec
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{where} has names that are not UTF-8 ({error}): save it in that encoding") from None
    except (ValueError, TypeError, RuntimeError, mujoco.FatalError) as error:
        reason = " ".join(str(error).split())
    raise ModelFileError(f"{where} cannot be loaded. MuJoCo says: {reason}{_advice(reason, source)}")


def _advice(reason: str, source: str | Path | mujoco.MjSpec) -> str:
    """What to do about a compiler error, with every missing asset named instead of only the first one."""
    unopened = re.search(r"Error opening file '([^']*)'", reason)
    if unopened:
        missing = _missing_assets(source) or [unopened[1]]
        advice = f"\nMissing file(s): {', '.join(missing)}. Put them where the file expects them"
        if any(name.startswith("package:") for name in missing):
            return advice + "; package:// addresses are not resolved: make them relative to the file"
        if isinstance(source, str):
            return advice + "; relative paths in XML text start at the working directory: pass the file's path instead"
        return advice + ", or correct the paths (compiler meshdir, texturedir, assetdir)"
    if "could not find decoder" in reason:
        return f"\nMuJoCo knows robot files by their suffix: rename it to one of {', '.join(_FILE_SUFFIXES)}"
    if "already included" in reason:
        return "\nFiles must not include one another, or the same one twice: remove that <include>"
    if "DEPTH_EXCEEDED" in reason:
        return "\nXML of more than 500 levels is not read: attach bodies higher up"
    if "PARSING_ATTRIBUTE" in reason:
        return "\nThe text is not well-formed XML: an attribute of that element is given twice, or lacks quotes"
    if "XML parse error" in reason:
        return "\nThe text is not well-formed XML: check the tags at that line"
    if "Unrecognized XML model type" in reason:
        return "\nThe root element must be <mujoco> (MJCF) or <robot> (URDF)"
    return "\nCorrect the element that it names"


def _missing_assets(source: str | Path | mujoco.MjSpec) -> list[str]:
    """Asset files that a description refers to and that are not there; [] if it does not even parse."""
    try:
        if isinstance(source, Path):
            spec = mujoco.MjSpec.from_file(os.fspath(source))
        elif isinstance(source, str):
            spec = mujoco.MjSpec.from_string(source)
        else:
            spec = source
    except (ValueError, RuntimeError):
        return []
    root = Path(spec.modelfiledir or ".")
    folders = {"meshes": spec.meshdir, "hfields": spec.meshdir, "skins": spec.meshdir, "textures": spec.texturedir}
    names = []
    for kind, folder in folders.items():
        for asset in getattr(spec, kind):
            file = asset.file
            if file and not (root / (folder or "") / file).exists() and not Path(file).exists():
                names.append(file)
    return list(dict.fromkeys(names))
