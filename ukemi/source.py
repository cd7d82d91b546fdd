"""Robot files: from whatever the user has in hand to a compiled `mujoco.MjModel`."""

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
_SHOWN = 200  # characters of a source that a message repeats
_UTF16_OR_32 = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")


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
        return _read_file(Path(source))
    if isinstance(source, mujoco.MjModel):
        _require_names(source, label(source))
        return source, None
    if isinstance(source, mujoco.MjSpec):
        return _compile(lambda: source, label(source), source)
    hint = "decode it to text, or " if isinstance(source, bytes | bytearray) else ""
    raise ModelFileError(
        f"a model cannot be loaded from a {type(source).__name__}: {hint}pass the path of an MJCF or URDF file, "
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
    return source in builtin_names() or (source.isidentifier() and len(source) < _SHOWN and not os.path.exists(source))


def _read_str(source: str) -> Parsed:
    if "\0" in source:
        raise ModelFileError(
            f"the source {_shown(source)} holds null characters: it is neither a path nor text that was decoded well"
        )
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise ModelFileError(f"the source {_shown(source)} holds characters that are not text: {error}") from None
    if _is_text(source):
        _examine(source, label(source))
        return _compile(lambda: mujoco.MjSpec.from_string(source), label(source), source)
    if not source.strip():
        raise ModelFileError("the model source is an empty string: pass a file's path, its text or a built-in name")
    if source in builtin_names():
        text = builtin_text(source)
        return _compile(lambda: mujoco.MjSpec.from_string(text), label(source), text)
    if re.match(r"[A-Za-z][\w+.-]*://", source):
        raise ModelFileError(f"{_shown(source)} is an address: save the file and what it refers to, and pass its path")
    if source.lstrip()[0] in "{[" or "\n" in source.strip():
        raise ModelFileError(f"{_shown(source)} is neither a path nor XML, which starts with <mujoco> or <robot>")
    if _is_name(source):
        raise ModelFileError(f"there is no built-in model '{source}', and no such file{_suggestion(source)}")
    return _read_file(Path(source))


def _read_file(path: Path) -> Parsed:
    try:
        path = path.expanduser()
        path.stat()
    except FileNotFoundError:
        raise ModelFileError(
            f"robot file {_shown(path)} does not exist (looked for {_shown(path.absolute())}){_suggestion(path.stem)}"
        ) from None
    except (OSError, ValueError, RuntimeError) as error:  # too long, null characters, an unknown ~user
        raise ModelFileError(f"{_shown(path)} cannot be the path of a robot file: {_said(error)}") from None
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.suffix.lower() in _FILE_SUFFIXES)
        hint = f": pass one of its files ({', '.join(inside[:8])})" if inside else " without MJCF or URDF files"
        raise ModelFileError(f"'{path}' is a directory{hint}")
    if not path.is_file():
        raise ModelFileError(f"'{path}' is not a regular file: write the robot file to disk and pass its path")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"robot file '{path}' cannot be read: {_said(error)}") from None
    if not content.strip():
        raise ModelFileError(f"robot file '{path}' is empty")
    if content.startswith(_UTF16_OR_32):
        raise ModelFileError(f"robot file '{path}' is UTF-16 or UTF-32 text: save it as UTF-8")
    if path.suffix.lower() in (".stl", ".obj", ".msh", ".dae"):
        raise ModelFileError(f"'{path}' is a mesh: pass the robot file (MJCF or URDF) that refers to it")
    if b"\0" in content:
        compiled = path.suffix.lower() == ".mjb"
        hint = "pass mujoco.MjModel.from_binary_path(...) of it" if compiled else "a robot file is XML in UTF-8"
        raise ModelFileError(f"'{path}' is not a text file, it holds null bytes: {hint}")
    _examine(content.decode("utf-8", "replace"), f"'{path}'")
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
        _require_names(model, where)
        return model, spec
    except UnicodeError as error:
        raise ModelFileError(f"{where} holds characters that are not UTF-8: {error}. Save it as UTF-8") from None
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        reason = " ".join(str(error).split())
    raise ModelFileError(f"{where} cannot be loaded. MuJoCo says: {reason}{_advice(reason, source)}")


def _advice(reason: str, source: str | Path | mujoco.MjSpec) -> str:
    """What to do about a compiler error, with every missing asset named instead of only the first one."""
    if "could not find decoder" in reason:
        return f"\nMuJoCo knows robot files by their suffix: rename it to one of {', '.join(_FILE_SUFFIXES)}"
    unopened = re.search(r"Error opening file '([^']*)'", reason)
    if unopened:
        missing = _missing_assets(source) or [unopened[1]]
        advice = f"\nMissing file(s): {', '.join(missing)}. Put them where the file expects them"
        if any(name.startswith("package:") for name in missing):
            return advice + "; package:// addresses are not resolved: make them relative to the file"
        if isinstance(source, str):
            return advice + "; relative paths in XML text start at the working directory: pass the file's path instead"
        return advice + ", or correct the paths (compiler meshdir, texturedir, assetdir)"
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


def _examine(text: str, where: str) -> None:
    """Refuse what MuJoCo would read otherwise than it was meant.

    Those are text after the end, and URDF that xacro has not expanded or that has no joints.
    """
    bare = re.sub(r"<!--.*?-->|<\?.*?\?>", "", text, flags=re.DOTALL)
    root = re.search(r"<\s*([A-Za-z_][\w:.-]*)", bare)
    if root is None:
        return
    rest = bare.partition(f"</{root[1]}>")[2].strip()
    if rest:
        raise ModelFileError(f"{where} goes on after </{root[1]}>, which would be ignored: {_shown(rest)}. Remove it")
    if root[1] != "robot":
        return
    left = re.search(r"<\s*xacro:[\w.-]*|\$\{[^}\"'<]*\}?|\$\([^)\"'<]*\)?", bare)
    if left:
        raise ModelFileError(
            f"{where} holds xacro macros that have not been expanded ({_shown(left[0])}): run "
            "`xacro ROBOT.urdf.xacro > ROBOT.urdf` and load the result"
        )
    if not re.search(r"<\s*joint\b", bare):
        raise ModelFileError(
            f"{where} is URDF in which nothing is joined: it has no <joint>, so that nothing can move. Add its joints; "
            "a body that floats freely is one of type='floating' below an empty link"
        )


def _require_names(m: mujoco.MjModel, where: str) -> None:
    try:
        m.names.decode()
    except UnicodeDecodeError as error:
        start = m.names.rfind(b"\0", 0, error.start) + 1
        name = m.names[start : m.names.find(b"\0", start)].decode("utf-8", "replace")
        raise ModelFileError(f"{where}: the name {name!r} is not UTF-8. Save the file as UTF-8") from None


def _shown(given: object) -> str:
    """A path or text in quotes, without its middle if it is long."""
    text = str(given)
    if len(text) <= _SHOWN and text.isprintable():
        return f"'{text}'"
    if len(repr(text)) <= _SHOWN:
        return repr(text)
    return f"{text[: _SHOWN // 4]!r} … {text[-20:]!r} ({len(text)} characters)"


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


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
